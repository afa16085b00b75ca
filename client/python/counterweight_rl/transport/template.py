"""Requests and answers that differ from earlier ones in their arrays alone."""

from __future__ import annotations

import ctypes
import functools
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from counterweight_rl import calls
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays import framing
from counterweight_rl.arrays.batch import OUTPUT_DTYPES, role_name
from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.arrays.requested_outputs import OUTPUT_ROLES
from counterweight_rl.arrays.wire import ELEMENT_BYTES
from counterweight_rl.contract.wire_format import prefix, varint
from counterweight_rl.correction import Correction, attribute
from counterweight_rl.local.plain_calls import (
    Arrays,
    Layout,
    has_plain_settings,
    read_inputs,
    read_layout,
)
from counterweight_rl.messages import Message
from counterweight_rl.result import Result

_REQUEST = pb.CorrectRequest
_TENSORS = pb.CorrectResponse.TENSORS_FIELD_NUMBER
_DATA = tensor_pb2.Tensor.DATA_FIELD_NUMBER
# A field of type varint has wire type 0.
_COUNT_TAGS = {
    "policy_version": varint(pb.Labels.POLICY_VERSION_FIELD_NUMBER << 3),
    "step": varint(pb.Labels.STEP_FIELD_NUMBER << 3),
}


class Template:
    """The common part of requests of one kind, serialized.

    Attributes:
        inputs: The argument of each tensor, in their order.
        heads: The messages of the tensors, without data.
        element_bytes: The size of an element of each.
        outputs: The names of the arrays that the caller may have.
        asked: The names of the arrays that the answer has to have; empty: the server's default.
        answered: The names of the arrays that it may have.
    """

    def __init__(self, call: Mapping[str, Any], kind: Arrays, correction: Correction[Any]) -> None:
        """Takes an answered call of this kind."""
        tensors = correction.batch.inputs
        self.inputs = [role_name(tensor.role) for tensor in tensors]
        self.heads = [framing.tensor_head(tensor.role, tensor.dtype) for tensor in tensors]
        self.element_bytes = [ELEMENT_BYTES[tensor.dtype] for tensor in tensors]
        self.outputs = frozenset(correction.requested.arrays)
        self.asked = [role_name(role) for role in correction.head["outputs"]]
        self.answered = [
            name
            for name in correction.requested.answered
            # There is no gradient by log-probs that were not given.
            if name != "gradient" or "current_log_probs" in self.inputs
        ]
        self._direct = [kind.is_direct(name, call[name]) for name in self.inputs]
        self._timeout = call.get("timeout")
        rest = framing.to_request(correction.head)
        for name in _COUNT_TAGS:
            rest.labels.ClearField(name)
        labels = rest.labels.SerializeToString()
        has_labels = call.get("run") is not None or call.get("replica") is not None
        self._labels = labels if has_labels else None
        for name in ("request_id", "labels", "layout"):
            rest.ClearField(name)
        self._rest = rest.SerializeToString()

    def call(self, call: Mapping[str, Any], kind: Arrays) -> calls.Call[Result[Any]] | None:
        """Returns a call of this kind; None: it needs judgement.

        Raises:
            TypeError: It is to go the whole way, too, which names the argument.
            InvalidRequestError: The same.
        """
        layout = read_layout(call, call[MASK].shape)
        if layout is None or not has_plain_settings(call):
            return None
        out = call.get("out")
        if out and not self._fit(out, kind, call[MASK], layout):
            return None
        arrays: list[Any] = []
        addresses = read_inputs(call, kind, self.inputs, self._direct, layout, arrays)
        if addresses is None:
            return None
        request_id = call.get("request_id") or uuid.uuid4().hex
        correction = PreparedCorrection(self, call, kind, layout, request_id, arrays, addresses)
        return calls.Call("Correct", None, self._timeout, request_id, correction)

    def head(self, request_id: str, call: Mapping[str, Any], layout: Layout) -> list[bytes]:
        """Returns the request without tensors, in the order in which protobuf writes it."""
        labels = self._labels
        for name, tag in _COUNT_TAGS.items():
            count = call.get(name)
            if count is not None:
                labels = b"".join((labels or b"", tag, varint(count)))
        parts = [field(_REQUEST.REQUEST_ID_FIELD_NUMBER, request_id.encode())]
        if labels is not None:
            parts.append(field(_REQUEST.LABELS_FIELD_NUMBER, labels))
        parts.append(field(_REQUEST.LAYOUT_FIELD_NUMBER, _layout(call, layout)))
        parts.append(self._rest)
        return parts

    def _fit(self, out: Any, kind: Arrays, mask: Any, layout: Layout) -> bool:
        """Whether destinations are plain arrays of the right size, and apart from each other."""
        if not out.keys() <= self.outputs:
            return False
        end = 0
        places = [(kind.take(n, given, mask, layout.of(n)) or 0, n) for n, given in out.items()]
        for address, name in sorted(places):
            if address < max(end, 1):
                return False
            end = address + output_size(name, layout)
        return True


class Output(NamedTuple):
    """An array of an answer.

    Attributes:
        name: The output's.
        array: The caller's, or a new one.
        address: Where the wire's bytes belong.
        convert: Makes the caller's array of ``array``; None: it is that.
    """

    name: str
    array: Any
    address: int
    convert: Callable[[Any], Any] | None


class PreparedCorrection(Correction[Any]):
    """A correction by a template. What else is asked of it is made the whole way, once."""

    def __init__(
        self,
        template: Template,
        call: Mapping[str, Any],
        kind: Arrays,
        layout: Layout,
        request_id: str,
        arrays: list[Any],
        addresses: list[int],
    ) -> None:
        """Takes the arguments of ``correct``, and what was read of them."""
        # The dataclass's __init__ is not called: __getattr__ makes its fields.
        positions = math.prod(layout.of_tokens)
        self.__dict__.update(
            template=template,
            kind=kind,
            layout=layout,
            request_id=request_id,
            addresses=addresses,
            sizes=[positions * size for size in template.element_bytes],
            _call=call,
            _arrays=arrays,  # as long as their addresses are used
        )

    template: Template
    kind: Arrays
    layout: Layout
    request_id: str
    addresses: list[int]
    sizes: list[int]
    _call: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the correction that the whole way makes."""
        if name not in ("head", "batch", "requested", "destinations"):
            raise AttributeError(name)
        whole = calls.correct(**{**self._call, "request_id": self.request_id}).correction
        assert whole is not None
        self.__dict__.update(
            head=whole.head,
            batch=whole.batch,
            requested=whole.requested,
            destinations=whole.destinations,
        )
        return self.__dict__[name]

    @property
    def num_bytes(self) -> int:
        """Total bytes of the tensors."""
        return sum(self.sizes)

    def message(self) -> bytes:
        """Returns the request as one message; copies the tensors."""
        parts: list[Any] = self.request_head()
        for head, address, size in zip(
            self.template.heads, self.addresses, self.sizes, strict=True
        ):
            data = prefix(_DATA, size)
            parts.append(prefix(_REQUEST.TENSORS_FIELD_NUMBER, len(head) + len(data) + size))
            parts.append(head)
            parts.append(data)
            parts.append((ctypes.c_char * size).from_address(address))
        return b"".join(parts)

    def request_head(self) -> list[bytes]:
        """Returns the request without tensors, in parts."""
        return self.template.head(self.request_id, self._call, self.layout)

    def read(self, message: bytes) -> Result[Any] | None:
        """Returns the Result of an answer, whose numbers are made when they are read.

        None: the answer needs judgement.
        """
        try:
            return self._read(message)
        except (ValueError, DecodeError):
            return None

    def _read(self, message: bytes) -> Result[Any] | None:
        places, end = self._find(message)
        response = pb.CorrectResponse.FromString(message[end:])
        if response.tensors or not self.takes([name for name, _ in places]):
            return None
        received = np.frombuffer(message, np.uint8)
        for name, begin in places:
            if name == "keep_mask":
                size = output_size(name, self.layout)
                if size and received[begin : begin + size].max() > 1:
                    return None
        begin_of = received.ctypes.data
        arrays = {name: self._fill(name, begin_of + begin) for name, begin in places}
        return self.result(response, arrays)

    def _find(self, message: bytes) -> tuple[list[tuple[str, int]], int]:
        """Returns where the arrays of an answer begin, and where its other fields do.

        Servers write the id and the tensors first. Of an answer in another order protobuf reads
        all, and then it needs judgement.
        """
        own_id = self.answered_id()
        if not message.startswith(own_id):
            return [], 0
        places = []
        at = len(own_id)
        for name in self.order():
            size = output_size(name, self.layout)
            head = _answer_head(name, size)
            if message.startswith(head, at) and len(message) >= at + len(head) + size:
                places.append((name, at + len(head)))
                at += len(head) + size
        return places, at

    def answered_id(self) -> bytes:
        """Returns how an answer begins."""
        return field(pb.CorrectResponse.REQUEST_ID_FIELD_NUMBER, self.request_id.encode())

    def order(self) -> Sequence[str]:
        """Returns the outputs in the order in which servers write them."""
        return self.template.asked or self.template.answered

    def takes(self, names: list[str]) -> bool:
        """Returns whether an answer has the arrays that it has to have."""
        asked, out = self.template.asked, self._call.get("out")
        return (not asked or names == asked) and (not out or out.keys() <= {*names})

    def given_address(self, name: str) -> int | None:
        """Returns the address of a destination of the caller's; None: there is none."""
        given = (self._call.get("out") or {}).get(name)
        if given is None:
            return None
        return self.kind.take(name, given, self._call[MASK], self.layout.of(name))

    def output(self, name: str) -> Output:
        """Returns the array of an output of the answer."""
        given = (self._call.get("out") or {}).get(name)
        if given is None:
            made = self.kind.make(name, self._call[MASK], self.layout.of(name))
            return Output(name, *made)
        address = self.given_address(name)
        if address is None:
            raise ValueError(f"out[{name!r}] was changed during the call")
        return Output(name, given, address, None)

    def finish(self, output: Output) -> Any:
        """Returns the caller's array of an output whose bytes were written."""
        if output.convert is not None:
            return output.convert(output.array)
        if output.name in (self._call.get("out") or {}):
            self.kind.wrote(output.array)
        return output.array

    def result(self, response: pb.CorrectResponse, arrays: dict[str, Any]) -> Result[Any]:
        """Returns the Result of an answer with these arrays."""
        outputs = self.template.outputs
        result: Result[Any] = object.__new__(Result)
        result.__dict__.update(dict.fromkeys(OUTPUT_DTYPES))
        result.__dict__.update({n: array for n, array in arrays.items() if n in outputs})
        result.__dict__.update(request_id=self.request_id, _late=Late(response))
        return result

    def _fill(self, name: str, address: int) -> Any:
        output = self.output(name)
        ctypes.memmove(output.address, address, output_size(name, self.layout))
        return self.finish(output)


class Late:
    """Makes the attributes of a Result that are read late."""

    __slots__ = ("_message", "_response")

    def __init__(self, response: pb.CorrectResponse) -> None:
        self._response = response
        self._message: Message | None = None

    def __call__(self, name: str) -> Any:
        """Returns the attribute."""
        if name == "metrics":  # which most callers read, and often nothing else
            return dict(sorted(self._response.metrics.items()))
        if self._message is None:
            others = pb.CorrectResponse()
            others.CopyFrom(self._response)
            others.ClearField("metrics")
            self._message = framing.to_json(others)
        return attribute(self._message, name)


@functools.cache
def output_head(output: str) -> bytes:
    """Returns an output's tensor without data, as protobuf writes it."""
    return framing.tensor_head(OUTPUT_ROLES[output], OUTPUT_DTYPES[output][0])


def _answer_head(output: str, size: int) -> bytes:
    """Returns what precedes the bytes of an output in an answer."""
    body = output_head(output) + (prefix(_DATA, size) if size else b"")
    return prefix(_TENSORS, len(body) + size) + body


def output_size(output: str, layout: Layout) -> int:
    """Returns the bytes of an output on the wire."""
    return math.prod(layout.of(output)) * OUTPUT_DTYPES[output][1].itemsize


def field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited field of a message."""
    return prefix(number, len(content)) + content


def _layout(call: Mapping[str, Any], layout: Layout) -> bytes:
    message = tensor_pb2.Layout()
    if layout.lengths is None:
        message.padded.num_sequences, message.padded.length = layout.of_tokens
    else:
        message.packed.sequence_lengths.extend(layout.lengths.tolist())
        message.packed.SetInParent()
        if call.get("padded_length") is not None:
            message.packed.padded_length = call["padded_length"]
    return message.SerializeToString()
