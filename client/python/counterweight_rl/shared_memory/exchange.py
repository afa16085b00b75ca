"""One batch in shared memory: ``Correct`` with ranges instead of bytes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays import framing
from counterweight_rl.arrays.batch import OUTPUT_DTYPES
from counterweight_rl.arrays.cuda import NotExportableError
from counterweight_rl.arrays.device_array import ForeignTensor
from counterweight_rl.arrays.device_output_array import DeviceOutputArray
from counterweight_rl.arrays.encoding import DeviceTensor, Input
from counterweight_rl.arrays.interop import addresses
from counterweight_rl.arrays.output_array import OutputArray
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.arrays.requested_outputs import OUTPUT_ROLES
from counterweight_rl.arrays.wire import ELEMENT_BYTES
from counterweight_rl.contract.tensors import TensorRole
from counterweight_rl.correction import Answer, Correction, reading
from counterweight_rl.errors import CounterweightError, DeadlineError, InvalidRequestError
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import Access, Region
from counterweight_rl.shared_memory.registry import AnyRegion, UnusableError
from counterweight_rl.status import StatusCode

_ALIGNMENT = 64  # of tensors in regions, bytes
# Codes after which the server no longer uses the request's memory; the client may make others.
_ANSWERS = (
    StatusCode.INVALID_ARGUMENT,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.RESOURCE_EXHAUSTED,
)

_Handle = bytes  # "bytes" is a method there


@dataclass(frozen=True)
class Place:
    """A range of a region."""

    region: AnyRegion
    offset: int
    length: int

    def bytes(self) -> memoryview:
        """Returns the range, on the host."""
        assert isinstance(self.region, Region)
        return self.region.bytes(self.offset, self.length)

    def describe(self, handle: _Handle) -> tensor_pb2.SharedMemoryRange:
        """Returns it as the wire has it."""
        return tensor_pb2.SharedMemoryRange(handle=handle, offset=self.offset, length=self.length)


class Exchange:
    """One batch. Inputs outside shared memory are copied into it, outputs out of it.

    CUDA tensors stay in place if the server computes on their device. Always ``close`` it.
    """

    def __init__(self, pool: Pool, correction: Correction[Any], timeout: float | None) -> None:
        """Copies the inputs that lie outside shared memory.

        ``timeout``: seconds from now in which the server must answer; None: no limit.

        Raises:
            UnusableError: The batch must take another transport.
            DeadlineError: The server does not answer in time.
        """
        self._pool = pool
        self._end = math.inf if timeout is None else time.monotonic() + timeout
        self._correction = correction
        self._taken: list[Region] = []
        self._lent: list[DeviceRegion] = []
        self._waits = False  # whether an answer is pending: the server may be writing
        self._inputs: list[Place | None] = []
        self._outputs: dict[str, Place] = {}
        self._in_place: dict[str, OutputArray] = {}
        self._on_device: list[DeviceOutputArray] = []
        self._sent: dict[str, tensor_pb2.SharedMemoryRange] = {}
        self._renewed = False
        try:
            self._place_inputs()
            self._place_outputs()
            if self._lent:
                # The server does not know the stream that completes the inputs, and torch may reuse
                # memory of unfinished work for fresh tensors.
                correction.batch.stream.synchronize()
        except BaseException:
            self.close()
            raise

    def message(self) -> bytes:
        """Returns the request with registered handles.

        Raises:
            UnusableError: The batch must take another transport.
            DeadlineError: The server does not answer in time.
        """
        request = framing.to_request(self._correction.request())
        for tensor, place in zip(request.tensors, self._inputs, strict=True):
            if place is not None:
                tensor.shared_memory.CopyFrom(place.describe(self._handle(place.region)))
        self._sent = {
            n: place.describe(self._handle(place.region)) for n, place in self._outputs.items()
        }
        for name, shared in self._sent.items():
            request.destinations.add(
                role=tensor_pb2.TensorRole.Name(OUTPUT_ROLES[name]),
                dtype=tensor_pb2.DType.Name(OUTPUT_DTYPES[name][0]),
                shared_memory=shared,
            )
        self._waits = True
        return request.SerializeToString()

    def read(self, message: bytes) -> Result[Any]:
        """Reads the answer.

        Raises:
            CounterweightError: The answer is unreadable.
        """
        self._waits = False
        with reading(self._correction.head["request_id"]):
            response, tensors = framing.decode_answer(message)
            answer = Answer(self._correction, response, tensors, self._in_place)
            for output, tensor in zip(answer.outputs, tensors, strict=True):
                if tensor.shared_memory is None:
                    output.fill(tensor.data)
                    continue
                if tensor.shared_memory != self._sent.get(output.name):
                    raise ValueError(f"{output.name} is in memory that it was not given")
                if output.name in self._in_place:
                    output.finish()
                else:
                    output.fill(self._outputs[output.name].bytes())
            return answer.result()

    def should_resend(self, failure: CounterweightError) -> bool:
        """Returns whether the next ``message`` avoids the failure.

        Raises:
            UnusableError: The server refuses the memory again after a new registration.
        """
        self._waits = failure.code not in _ANSWERS
        if isinstance(failure, InvalidRequestError):
            fields = [violation.path or "" for violation in failure.violations]
            if fields and not any("shared_memory" in field for field in fields):
                return False
        elif failure.code is not StatusCode.FAILED_PRECONDITION:
            return False
        if self._renewed:
            raise UnusableError(f"the server does not know memory that it took: {failure}")
        # The server was restarted, or lost the connection.
        self._renewed = True
        self._pool.forget_handles()
        return True

    def close(self) -> None:
        """Returns the regions; without an answer, the server may still write to some."""
        while self._taken:
            region = self._taken.pop()
            if self._waits and region.access is Access.WRITE:
                self._pool.discard(region)
            else:
                self._pool.give_back(region)
        if self._waits:
            written = {region for region in self._lent if region.access is Access.WRITE}
            self._pool.keep(written, [output.target for output in self._on_device])
        self._pool.let_go(self._lent)
        self._lent = []

    def _take(self, access: Access, sizes: list[int]) -> list[Place]:
        """Reserves places of these sizes in one region."""
        offsets, total = [], 0
        for size in sizes:
            offsets.append(total)
            total += -(-size // _ALIGNMENT) * _ALIGNMENT
        if not sizes:
            return []
        region = self._pool.take(access, total)
        self._taken.append(region)
        self._handle(region)  # a refused region need not be filled
        return [Place(region, o, size) for o, size in zip(offsets, sizes, strict=True)]

    def _handle(self, region: AnyRegion) -> bytes:
        with self._identified():
            return self._pool.handle(region, self._end)

    @contextmanager
    def _identified(self) -> Iterator[None]:
        try:
            yield
        except DeadlineError as late:
            late.request_id = self._correction.head["request_id"]
            raise

    def _find_input(self, tensor: Input) -> Place | None:
        if tensor.num_bytes == 0:
            return None
        if isinstance(tensor, ForeignTensor):
            tensor.to_host()  # which refuses
            return None
        if isinstance(tensor, DeviceTensor):
            return self._lend(tensor.flat, Access.READ)
        return self._find(tensor.data, tensor.dtype, Access.READ)

    def _lend(self, flat: Any, access: Access) -> Place | None:
        if not self._pool.devices:
            return None
        try:
            with self._identified():
                region, offset = self._pool.lend(flat, access, self._end)
        except (NotExportableError, UnusableError) as why:
            if isinstance(why, UnusableError) and why.lasting:
                raise  # no other shared memory is available either
            self._pool.warn_of_copies(str(why))
            return None
        self._lent.append(region)
        return Place(region, offset, flat.numel())

    def _find(self, data: memoryview, dtype: int, access: Access) -> Place | None:
        begin, end = addresses(data)
        found = self._pool.find(begin, end - begin, access)
        if found is None or found[1] % ELEMENT_BYTES[dtype]:
            return None
        return Place(found[0], found[1], end - begin)

    def _place_inputs(self) -> None:
        batch = self._correction.batch
        self._inputs = [self._find_input(tensor) for tensor in batch.inputs]
        missing = [i for i, t in enumerate(batch.inputs) if t.num_bytes and self._inputs[i] is None]
        places = self._take(Access.READ, [batch.inputs[i].num_bytes for i in missing])
        for i, place, tensor in zip(missing, places, batch.on_host(missing), strict=True):
            # numpy releases the interpreter's lock while it copies.
            to = np.frombuffer(place.bytes(), np.uint8)
            np.copyto(to, np.frombuffer(tensor.data, np.uint8))
            self._inputs[i] = place

    def _place_outputs(self) -> None:
        correction = self._correction
        # There is no gradient by log-probs that were not given.
        current = TensorRole.CURRENT_LOG_PROBS
        may_have_gradient = any(tensor.role == current for tensor in correction.batch.inputs)
        sizes: dict[str, int] = {}
        for name in correction.requested.answered:
            if name == "gradient" and not may_have_gradient:
                continue
            dtype, wire_dtype = OUTPUT_DTYPES[name]
            size = int(np.prod(correction.batch.output_shape(name))) * wire_dtype.itemsize
            if size == 0:
                continue
            sizes[name] = size
            destination = correction.destinations.get(name)
            if self._place_on_device(name, destination):
                continue
            if destination is not None:
                output = OutputArray(name, correction.batch, destination, Transfers())
                if output.memory is not None:
                    place = self._find(output.memory, dtype, Access.WRITE)
                    if place is not None:
                        self._outputs[name] = place
                        self._in_place[name] = output
        missing = [name for name in sizes if name not in self._outputs]
        places = self._take(Access.WRITE, [sizes[name] for name in missing])
        self._outputs.update(zip(missing, places, strict=True))

    def _place_on_device(self, name: str, destination: Any) -> bool:
        batch = self._correction.batch
        if batch.stream is None or not self._pool.devices:
            return False
        output = DeviceOutputArray(name, batch, destination)
        place = self._lend(output.target, Access.WRITE)
        if place is None:
            return False
        self._outputs[name] = place
        self._in_place[name] = output
        self._on_device.append(output)
        return True
