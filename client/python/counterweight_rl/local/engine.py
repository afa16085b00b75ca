"""The engine answers calls in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from counterweight_rl import calls, step_report
from counterweight_rl.arrays import wire
from counterweight_rl.arrays.device_array import ForeignTensor
from counterweight_rl.arrays.encoding import DeviceTensor, Input
from counterweight_rl.arrays.interop import addresses
from counterweight_rl.correction import Correction, reading
from counterweight_rl.errors import (
    CounterweightError,
    client_closed,
    from_code,
    read_bad_request,
)
from counterweight_rl.local import json_form, library
from counterweight_rl.local.placing import STOP, Placing, place
from counterweight_rl.local.plan import Pieces, Plan
from counterweight_rl.local.prepared_calls import PreparedCalls
from counterweight_rl.local.target import LocalTarget
from counterweight_rl.messages import Message
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.result import Result
from counterweight_rl.status import CODES, StatusCode
from counterweight_rl.translation import Sent

T = TypeVar("T")

_REQUEST_BYTES = ctypes.sizeof(library.Request)
_ALIGNMENT = 4  # of the largest element


class Publisher(Protocol):
    """Takes the sums of batches; see ``transport.publisher``."""

    @property
    def dropped(self) -> int:
        """Messages that were given up, and batches whose sums were."""

    @property
    def takes_turns(self) -> bool:
        """Whether messages may go to several servers."""

    def another(self, what: str) -> Publisher:
        """Returns one to the same server for messages of another kind."""

    def put(self, message: bytes) -> None:
        """Takes the sums of one batch."""

    def report(self, message: Message, rpc: str) -> None:
        """Takes a report of a step, or the declaration of a run."""

    def drop(self) -> None:
        """Counts a batch without sums as given up."""

    def close(self) -> None:
        """Sends the rest."""


class Engine:
    """A handle of the library. Thread-safe, and usable in forked children; starts no thread yet.

    Attributes:
        prepared: Its prepared calls; None: each call goes the whole way.
    """

    def __init__(self, target: LocalTarget, publisher: Publisher | None = None) -> None:
        """Opens it; gives the sums of each batch to ``publisher``.

        Raises:
            CounterweightError: There is no library, or it lacks what ``target`` requires.
        """
        self._library = library.load()
        self._publisher = publisher
        self._on_device = target.backend == "cuda"
        self._handle = ctypes.c_void_p()
        options = library.Options(
            struct_size=ctypes.sizeof(library.Options),
            backend=target.backend.encode(),
            threads=target.threads,
            device=target.device,
            max_tokens=target.max_tokens,
            max_sequences=target.max_sequences,
        )
        if self._library.cw_open(ctypes.byref(options), ctypes.byref(self._handle)):
            # Options have no form, so violations are protobuf's bytes.
            raise self._failure(None, Sent(), lambda text: read_bad_request(memoryview(text)))
        # Only cw_correct returns the sums that are published.
        self.prepared = (
            PreparedCalls(
                self._library,
                self._handle,
                lambda: self._failure(None, Sent()),
                device=target.device if self._on_device else None,
            )
            if publisher is None
            else None
        )

    def close(self) -> None:
        """Ends it; no call may be under way or begin later. Idempotent."""
        if self.prepared is not None:
            self.prepared.close()
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._library.cw_close(handle)

    def run(self, call: calls.Call[T], timeout: float | None, stop: STOP) -> T:
        """The answer to a call; ``stop`` ends it from another thread.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        if call.correction is not None:
            result: Any = self._correct(call.correction, timeout, stop)
            return result  # type: ignore[no-any-return]
        assert call.read is not None
        if call.rpc == "MergeSums":
            return call.read(self._merge(call))
        if call.rpc == "Diagnose":
            return call.read(self._diagnose(call, timeout, stop))
        if call.rpc == "ReportStep":
            return call.read(self._report(call.message))
        if call.rpc == "DeclareRun":
            return call.read(self._declare(call))
        if call.rpc == "GroupAdvantages":
            return call.read(self._group_advantages(call))
        answer = ctypes.POINTER(library.Answer)()
        functions = {
            "ListMethods": self._library.cw_list_methods,
            "GetServerInfo": self._library.cw_server_info,
        }
        if functions[call.rpc](self._handle, library.JSON, ctypes.byref(answer)):
            raise self._failure(call.request_id, Sent())
        try:
            return call.read(json_form.load(answer.contents.message.copy()))
        finally:
            self._library.cw_free(answer)

    def _diagnose(self, call: calls.Call[Any], timeout: float | None, stop: STOP) -> Message:
        """The answer of Diagnose."""
        assert call.examined is not None
        tensors = [_aligned(tensor) for tensor in call.examined.tensors]
        places = [addresses(tensor.data) for tensor in tensors]
        inputs = (library.Bytes * len(places))(*(library.Bytes(b, e - b) for b, e in places))
        heads = [{"role": tensor.role, "dtype": tensor.dtype} for tensor in tensors]
        message = json_form.dump({**call.message, "tensors": heads})
        request = library.Request(
            struct_size=_REQUEST_BYTES,
            format=library.JSON,
            message=library.bytes_of(message),
            tensors=inputs,
            num_tensors=len(places),
            timeout_seconds=_seconds(timeout),
            stop=ctypes.pointer(stop),
            memory=library.HOST,
        )
        answer = ctypes.POINTER(library.Answer)()
        if self._library.cw_diagnose(self._handle, ctypes.byref(request), ctypes.byref(answer)):
            raise self._failure(call.request_id, call.sent)
        try:
            return json_form.load(answer.contents.message.copy())
        finally:
            self._library.cw_free(answer)

    def plan(self, correction: Correction[Any], timeout: float | None) -> Plan:
        """Prepares a call; see ``Plan``.

        Raises:
            CounterweightError: The call is refused.
        """
        try:
            return Plan(self._library, self._handle, correction, timeout)
        except ValueError:
            raise self._failure(correction.head["request_id"], Sent()) from None

    def sum_parts(self, plan: Plan, batch: Pieces, stop: STOP) -> tuple[Any, Any] | None:
        """``PartialSums.sums`` and ``.maxima`` of parts of a batch, as matrices.

        They are those of a run of each part's rows alone.

        Args:
            plan: Of a call with partial_sums and omit_loss.
            batch: The batch.
            stop: Ends the call from another thread.

        Returns:
            float64, a row for each part. None: they need a call for each part.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        answer = ctypes.POINTER(library.Answer)()
        code = plan.sum_parts(batch, ctypes.addressof(stop), answer)
        if code == StatusCode.FAILED_PRECONDITION.value[0]:
            return None
        if code:
            raise self._failure(None, Sent())
        try:
            sums, maxima = (
                np.frombuffer(answer.contents.tensors[i].copy(), np.float64) for i in range(2)
            )
            return sums.reshape(batch.num_parts, -1), maxima.reshape(batch.num_parts, -1)
        finally:
            self._library.cw_free(answer)

    def _report(self, message: Message) -> Message:
        """The answer of ReportStep, which this process gives for its own side."""
        if self._publisher is not None:
            self._publisher.report(message, "ReportStep")
        return step_report.answer(message)

    def _declare(self, call: calls.Call[Any]) -> Message:
        """The answer of DeclareRun; this handle compares its own batches."""
        message = json_form.dump(call.message)
        answer = ctypes.POINTER(library.Answer)()
        if self._library.cw_declare_run(
            self._handle, library.bytes_of(message), library.JSON, ctypes.byref(answer)
        ):
            raise self._failure(call.request_id, Sent())
        try:
            if self.prepared is not None:
                # A plan compares when it is made.
                self.prepared.close()
            if self._publisher is not None:
                self._publisher.report(call.message, "DeclareRun")
            return json_form.load(answer.contents.message.copy())
        finally:
            self._library.cw_free(answer)

    def _group_advantages(self, call: calls.Call[Any]) -> Message:
        """The answer of GroupAdvantages."""
        message = json_form.dump(call.message)
        answer = ctypes.POINTER(library.Answer)()
        if self._library.cw_group_advantages(
            self._handle, library.bytes_of(message), library.JSON, ctypes.byref(answer)
        ):
            raise self._failure(call.request_id, Sent())
        try:
            return json_form.load(answer.contents.message.copy())
        finally:
            self._library.cw_free(answer)

    def _merge(self, call: calls.Call[Any]) -> Message:
        """The answer of MergeSums, with the sums as PartialSums."""
        parts = call.parts
        if parts:
            # The library writes the sums of all into the first.
            parts = [PartialSums(parts[0].sums.copy(), parts[0].maxima.copy()), *parts[1:]]
        places = (library.Partial * len(parts))(
            *(
                library.Partial(
                    part.sums.ctypes.data, len(part.sums), part.maxima.ctypes.data, len(part.maxima)
                )
                for part in parts
            )
        )
        message = json_form.dump(call.message)
        answer = ctypes.POINTER(library.Answer)()
        if self._library.cw_merge_arrays(
            self._handle,
            library.bytes_of(message),
            library.JSON,
            places,
            len(parts),
            ctypes.byref(answer),
        ):
            raise self._failure(call.request_id, Sent())
        try:
            if "labels" in call.message and self._publisher is not None:
                self._publish(answer, self._publisher)
            return {**json_form.load(answer.contents.message.copy()), "sums": parts[0]}
        finally:
            self._library.cw_free(answer)

    def _correct(
        self, correction: Correction[Any], timeout: float | None, stop: STOP
    ) -> Result[Any]:
        batch = correction.batch
        stream = batch.stream_handle if self._on_device else None
        if stream is None:
            tensors: list[Any] = [_aligned(tensor) for tensor in batch.tensors]
            places = [addresses(tensor.data) for tensor in tensors]
        else:
            tensors = list(batch.inputs)
            places = [_on_device(tensor) for tensor in tensors]
        inputs = (library.Bytes * len(places))(*(library.Bytes(b, e - b) for b, e in places))
        message = json_form.dump(correction.request())
        answer = ctypes.POINTER(library.Answer)()
        with Placing(correction, places, on_device=stream is not None) as placing:
            request = library.Request(
                struct_size=_REQUEST_BYTES,
                format=library.JSON,
                message=library.bytes_of(message),
                tensors=inputs,
                num_tensors=len(places),
                place=place,
                context=placing.context,
                timeout_seconds=_seconds(timeout),
                stop=ctypes.pointer(stop),
                memory=library.HOST if stream is None else library.CUDA,
                stream=stream,
            )
            code = self._library.cw_correct(
                self._handle, ctypes.byref(request), ctypes.byref(answer)
            )
        try:
            if placing.failure is not None:
                raise placing.failure
            if code:
                raise self._failure(correction.head["request_id"], correction.sent)
            with reading(correction.head["request_id"]):
                result = placing.result(answer.contents)
            # Parts of a step are published together, by publish_step.
            if self._publisher is not None and not correction.head.get("partial_sums"):
                self._publish(answer, self._publisher)
            return result
        finally:
            self._library.cw_free(answer)

    def _publish(self, answer: Any, publisher: Publisher) -> None:
        sums = library.Bytes()
        if self._library.cw_sums(answer, library.PROTOBUF, ctypes.byref(sums)):
            publisher.drop()
        elif sums.size:
            publisher.put(sums.copy())

    def _failure(
        self,
        request_id: str | None,
        sent: Sent,
        read: Callable[[bytes], list[tuple[str, str]]] = json_form.violations_of,
    ) -> CounterweightError:
        """The error of this thread's last call, whose violations ``read`` understands."""
        error = self._library.cw_last_error().contents
        code = CODES[error.code]
        if code is StatusCode.CANCELLED:
            return client_closed(request_id)
        fields = read(error.violations.copy())
        message = error.message.decode("utf-8", "replace")
        return from_code(code, message, fields, request_id=request_id, sent=sent)


def _seconds(timeout: float | None) -> float:
    """A timeout in the library's form."""
    return 0.0 if timeout is None else max(timeout, library.SHORTEST_SECONDS)


def _on_device(tensor: Input) -> tuple[int, int]:
    """Addresses of a tensor on a device: its first byte and the end."""
    if isinstance(tensor, ForeignTensor):
        return addresses(tensor.array)
    assert isinstance(tensor, DeviceTensor)
    return addresses(tensor.flat)


def _aligned(tensor: wire.WireTensor) -> wire.WireTensor:
    """The tensor at an address that its elements may have; a copy if need be."""
    begin, _ = addresses(tensor.data)
    if begin % _ALIGNMENT == 0 or begin % wire.ELEMENT_BYTES[tensor.dtype] == 0:
        return tensor
    copied = memoryview(bytearray(tensor.data))
    return wire.WireTensor(tensor.role, tensor.dtype, copied, owned=True)
