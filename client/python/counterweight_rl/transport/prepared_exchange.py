"""One batch in shared memory whose request is framed by a template."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays.batch import OUTPUT_DTYPES
from counterweight_rl.arrays.wire import ELEMENT_BYTES
from counterweight_rl.correction import Correction
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.exchange import Exchange, Place
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import Access, Region
from counterweight_rl.shared_memory.registry import AnyRegion
from counterweight_rl.transport.template import (
    Output,
    PreparedCorrection,
    field,
    output_head,
    output_size,
)

_RANGE = tensor_pb2.Tensor.SHARED_MEMORY_FIELD_NUMBER
_TENSORS = pb.CorrectRequest.TENSORS_FIELD_NUMBER
_DESTINATIONS = pb.CorrectRequest.DESTINATIONS_FIELD_NUMBER
_ANSWERED = pb.CorrectResponse.TENSORS_FIELD_NUMBER


class PreparedExchange(Exchange):
    """An ``Exchange`` that reads addresses; the base reads what a template does not know."""

    def __init__(self, pool: Pool, prepared: PreparedCorrection, timeout: float | None) -> None:
        """Copies the inputs that lie outside shared memory, like the base."""
        self._prepared = prepared
        self._ranges: dict[str, bytes] = {}
        self._written: set[str] = set()  # the outputs whose destinations are shared memory
        super().__init__(pool, prepared, timeout)

    def message(self) -> bytes:
        """Returns the request with registered handles."""
        handles: dict[AnyRegion, bytes] = {}
        parts = self._prepared.request_head()
        for head, place in zip(self._prepared.template.heads, self._inputs, strict=True):
            shared = b"" if place is None else field(_RANGE, self._range(place, handles))
            parts.append(field(_TENSORS, head + shared))
        self._ranges = {name: self._range(p, handles) for name, p in self._outputs.items()}
        for name, shared in self._ranges.items():
            parts.append(field(_DESTINATIONS, output_head(name) + field(_RANGE, shared)))
        self._waits = True
        return b"".join(parts)

    def read(self, message: bytes) -> Result[Any]:
        """Reads the answer."""
        self._waits = False
        try:
            result = self._read(message)
        except (ValueError, DecodeError):
            result = None
        if result is not None:
            return result
        self._sent = {
            name: tensor_pb2.SharedMemoryRange.FromString(shared)
            for name, shared in self._ranges.items()
        }
        return super().read(message)

    def _read(self, message: bytes) -> Result[Any] | None:
        """Returns None if the answer needs judgement."""
        prepared = self._prepared
        own_id = prepared.answered_id()
        if not message.startswith(own_id):
            return None
        names, at = [], len(own_id)
        for name in prepared.order():
            shared = self._ranges.get(name)
            if shared is None:
                continue
            tensor = field(_ANSWERED, output_head(name) + field(_RANGE, shared))
            if message.startswith(tensor, at):
                names.append(name)
                at += len(tensor)
        response = pb.CorrectResponse.FromString(message[at:])
        if response.tensors or not prepared.takes(names):
            return None
        if "keep_mask" in names:
            mask = np.frombuffer(self._outputs["keep_mask"].bytes(), np.uint8)
            if mask.size and mask.max() > 1:
                return None
        arrays = {name: self._filled(name) for name in names}
        return prepared.result(response, arrays)

    def _filled(self, name: str) -> Any:
        output: Output = self._prepared.output(name)
        if name not in self._written:
            place = self._outputs[name]
            ctypes.memmove(output.address, _address(place), place.length)
        return self._prepared.finish(output)

    def _range(self, place: Place, handles: dict[AnyRegion, bytes]) -> bytes:
        """Returns a place as a SharedMemoryRange; each region is looked at once."""
        handle = handles.get(place.region)
        if handle is None:
            handle = handles[place.region] = self._handle(place.region)
        return place.describe(handle).SerializeToString()

    def _find_at(self, address: int, size: int, element_bytes: int, access: Access) -> Place | None:
        found = self._pool.find(address, size, access) if size else None
        if found is None or found[1] % element_bytes:
            return None
        return Place(*found, size)

    def _place_inputs(self) -> None:
        prepared = self._prepared
        columns = (prepared.addresses, prepared.sizes, prepared.template.element_bytes)
        self._inputs = [self._find_at(*row, Access.READ) for row in zip(*columns, strict=True)]
        missing = [i for i, size in enumerate(prepared.sizes) if size and self._inputs[i] is None]
        places = self._take(Access.READ, [prepared.sizes[i] for i in missing])
        for i, place in zip(missing, places, strict=True):
            ctypes.memmove(_address(place), prepared.addresses[i], prepared.sizes[i])
            self._inputs[i] = place

    def _place_outputs(self) -> None:
        prepared = self._prepared
        missing = {}
        for name in prepared.template.answered:
            size = output_size(name, prepared.layout)
            if not size:
                continue
            address = prepared.given_address(name)
            element_bytes = ELEMENT_BYTES[OUTPUT_DTYPES[name][0]]
            place = address and self._find_at(address, size, element_bytes, Access.WRITE)
            if place:
                self._outputs[name] = place
                self._written.add(name)
            else:
                missing[name] = size
        places = self._take(Access.WRITE, [*missing.values()])
        self._outputs.update(zip(missing, places, strict=True))


def open_exchange(pool: Pool, correction: Correction[Any], timeout: float | None) -> Exchange:
    """Returns the exchange of a correction; raises what it raises."""
    if isinstance(correction, PreparedCorrection):
        return PreparedExchange(pool, correction, timeout)
    return Exchange(pool, correction, timeout)


def _address(place: Place) -> int:
    assert isinstance(place.region, Region)
    return place.region.address + place.offset
