"""One batch: its tensors in the wire's form, and the shapes of its answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

import numpy as np

from counterweight_rl.arguments import INT64, int_list, integer
from counterweight_rl.arrays import cuda, wire
from counterweight_rl.arrays.device_array import DeviceArray, stream_of
from counterweight_rl.arrays.encoding import MASK, Input, to_wire
from counterweight_rl.arrays.interop import ArrayT, adopt, check_kinds, is_torch
from counterweight_rl.arrays.nested import Nested, unnest
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.contract.tensors import DType, TensorRole
from counterweight_rl.errors import Violation, refuse

_ADVANTAGES = "advantages"
_REAL = (DType.F32, np.dtype("<f4"))
_REASONS = (DType.U16, np.dtype("<u2"))
OUTPUT_DTYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "weights": _REAL,
    "gradient": _REAL,
    "keep_mask": (DType.U8, np.dtype("u1")),
    "token_reasons": _REASONS,
    "sequence_reasons": _REASONS,
}
"""The dtype of each output on the wire, and in numpy."""


@dataclass(frozen=True)
class Batch(Generic[ArrayT]):
    """One request's tensors in the wire's form, and the shapes of the answer.

    Attributes:
        layout: The wire's layout.
        inputs: In the order of the arguments. Views of the caller's memory if it is contiguous and
            has a dtype of the wire, else converted copies; CUDA tensors are on their device.
        response_mask: The caller's mask; the outputs take its kind, shape, dtype and device.
        num_sequences: Rows.
        stream: With CUDA tensors, the caller's current stream; the inputs are complete in its
            order.
        foreign_stream: With arrays on a device that are not torch's, the cudaStream_t of the same
            meaning. Else None.
        nested: The layout of nested tensors, which inputs and ``response_mask`` no longer have and
            answers get. Else None.
    """

    layout: Mapping[str, Any]
    inputs: list[Input]
    response_mask: ArrayT
    num_sequences: int
    stream: Any = None
    foreign_stream: int | None = None
    nested: Nested | None = None

    @property
    def stream_handle(self) -> int | None:
        """The cudaStream_t of inputs on a device; None: they are on the host."""
        return self.foreign_stream if self.stream is None else int(self.stream.cuda_stream)

    @cached_property
    def tensors(self) -> list[wire.WireTensor]:
        """The inputs on the host; the first access copies those on a device."""
        return self.on_host(range(len(self.inputs)))

    def on_host(self, indices: Iterable[int]) -> list[wire.WireTensor]:
        """Returns some of the inputs on the host."""
        chosen = [self.inputs[i] for i in indices]
        with self.on_stream():
            transfers = Transfers()
            tensors = [
                t if isinstance(t, wire.WireTensor) else t.to_host(transfers) for t in chosen
            ]
            if self.stream is not None:
                transfers.wait()
        return tensors

    def on_stream(self) -> AbstractContextManager[None]:
        """Runs the work on CUDA tensors inside on the caller's stream."""
        return nullcontext() if self.stream is None else cuda.on_stream(self.stream)

    @property
    def lengths(self) -> list[int]:
        """Positions of each sequence."""
        if "packed" in self.layout:
            return list(self.layout["packed"]["sequence_lengths"])
        shape = self.layout["padded"]
        return [shape["length"]] * int(shape["num_sequences"])

    def output_shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of the output."""
        if name == "sequence_reasons":
            return (self.num_sequences,)
        return tuple(self.response_mask.shape)

    def as_sent(self, name: str, array: Any) -> Any:
        """Returns an output in the layout of the caller's arrays."""
        is_packed = self.nested is not None and name != "sequence_reasons"
        return self.nested.nest(array) if self.nested is not None and is_packed else array

    def output_dtype(self, name: str) -> Any:
        """Returns the dtype of the output, numpy's or torch's."""
        mask: Any = self.response_mask
        if name == "keep_mask":
            return mask.dtype
        dtype = OUTPUT_DTYPES[name][1].newbyteorder("=")
        if not is_torch(mask):
            return dtype
        torch = sys.modules["torch"]
        # torch has no bit operations on uint16.
        return torch.int32 if dtype == np.uint16 else torch.float32


def read_batch(
    inputs: Mapping[str, ArrayT | None],
    response_mask: ArrayT,
    sequence_lengths: Any,
    padded_length: int | None,
) -> Batch[ArrayT]:
    """Converts the arguments; refuses what the wire cannot express.

    Args:
        inputs: Log-probs and advantages by argument name; None is skipped. Advantages may be one
            per sequence, [B] or [B, 1].
        response_mask: The mask.
        sequence_lengths: Ints; if present, the layout is packed, as it is with nested tensors.
        padded_length: See ``Client.correct``.

    Raises:
        TypeError: Not an array, mixed kinds or devices, or a dtype that the wire does not carry.
        InvalidRequestError: Shapes contradict each other.
    """
    # Reads the mask first: the others are compared with it.
    response_mask = adopt(MASK, response_mask)
    arrays: dict[str, Any] = {
        name: adopt(name, array) for name, array in inputs.items() if array is not None
    }
    arrays, response_mask, nested = unnest(arrays, MASK, response_mask, sequence_lengths)
    arrays[MASK] = response_mask
    check_kinds(arrays, MASK)
    lengths = None if nested is None else nested.lengths
    if sequence_lengths is not None:
        lengths = int_list("sequence_lengths", sequence_lengths)
    if padded_length is not None:
        padded_length = integer("padded_length", padded_length, INT64)
    violations: list[Violation] = []
    if _ADVANTAGES in arrays:
        if nested is None and _is_ambiguous(arrays[_ADVANTAGES], arrays[MASK], lengths):
            problem = (
                "fit one per token and one per sequence, because sequences are empty; pass [B, 1] "
                "for one per sequence, or leave the empty sequences out"
            )
            violations.append(Violation(_ADVANTAGES, problem))
        arrays[_ADVANTAGES] = per_token(arrays[_ADVANTAGES], arrays[MASK], lengths)
    violations += _shape_violations(arrays, packed=lengths is not None)
    if not violations and lengths is not None:
        violations = _length_violations(lengths, response_mask)
    if padded_length is not None and lengths is None:
        violations.append(Violation("padded_length", "is only for the packed layout"))
    if violations:
        raise refuse(violations)
    if lengths is None:
        num_sequences = int(response_mask.shape[0])
        shape = {"num_sequences": num_sequences, "length": int(response_mask.shape[1])}
        layout: dict[str, Any] = {"padded": shape}
    else:
        num_sequences = len(lengths)
        layout = {"packed": {"sequence_lengths": lengths}}
        if padded_length is not None:
            layout["packed"]["padded_length"] = padded_length
    transfers = Transfers()
    tensors = [to_wire(name, array, transfers) for name, array in arrays.items()]
    transfers.wait()
    stream = None
    foreign_stream = None
    if cuda.is_on_device(response_mask):
        # A reader in another thread or process has to wait for it.
        stream = cuda.current_stream(response_mask)
    elif isinstance(response_mask, DeviceArray):
        foreign_stream = stream_of(arrays, MASK)
    return Batch(
        layout=layout,
        inputs=tensors,
        response_mask=response_mask,
        num_sequences=num_sequences,
        stream=stream,
        foreign_stream=foreign_stream,
        nested=nested,
    )


def role_name(role: int) -> str:
    """Returns the name of a role's argument or output: "weights" for TENSOR_ROLE_WEIGHTS."""
    return TensorRole(role).name.lower()


def _is_ambiguous(advantages: Any, mask: Any, lengths: list[int] | None) -> bool:
    """Whether packed advantages may be one per token and one per sequence, with other answers."""
    if lengths is None or all(length == 1 for length in lengths):
        return False
    return tuple(advantages.shape) == tuple(mask.shape) == (len(lengths),)


def per_token(advantages: Any, mask: Any, lengths: list[int] | None) -> Any:
    """Expands advantages of [B] or [B, 1] to every token; returns others unchanged."""
    if isinstance(advantages, DeviceArray):
        return advantages  # nothing is copied there
    shape = tuple(advantages.shape)
    rows = len(lengths) if lengths is not None else mask.shape[0] if mask.ndim == 2 else -1
    if shape == tuple(mask.shape) or shape not in ((rows,), (rows, 1)):
        return advantages
    if lengths is None:
        # A view; sending copies it once.
        column = advantages.reshape(rows, 1)
        if is_torch(advantages):
            return column.expand(tuple(mask.shape))
        return np.broadcast_to(column, mask.shape)
    if min(lengths, default=0) < 0:  # the server refuses it
        return advantages
    if is_torch(advantages):
        torch = sys.modules["torch"]
        repeats = torch.tensor(lengths, dtype=torch.int64, device=advantages.device)
        return torch.repeat_interleave(advantages.reshape(rows), repeats)
    return np.repeat(advantages.reshape(rows), lengths)


def _length_violations(lengths: list[int], mask: Any) -> list[Violation]:
    # The server refuses negative ones.
    if sum(lengths) == mask.shape[0] or min(lengths, default=0) < 0:
        return []
    problem = f"sum to {sum(lengths)}, but {MASK} has {mask.shape[0]} positions"
    return [Violation("sequence_lengths", problem)]


def _shape_violations(arrays: Mapping[str, Any], *, packed: bool) -> list[Violation]:
    if packed:
        ndim, expected = 1, "must be 1-D [sum of sequence_lengths] when sequence_lengths is given"
    else:
        ndim, expected = 2, "must be 2-D [B, T] unless sequence_lengths is given"
    violations = [
        Violation(name, f"{expected}; its shape is {tuple(array.shape)}")
        for name, array in arrays.items()
        if array.ndim != ndim
    ]
    shape = tuple(arrays[MASK].shape)
    violations += [
        Violation(name, f"has shape {tuple(array.shape)}, but {MASK} has {shape}")
        for name, array in arrays.items()
        if array.ndim == ndim and len(shape) == ndim and tuple(array.shape) != shape
    ]
    return violations
