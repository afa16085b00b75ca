"""Tensors of the caller to bytes of the wire and back.

torch is never imported here: an object can only be a torch tensor if its caller already has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from counterweight import wire
from counterweight._gen.counterweight.v1 import tensor_pb2
from counterweight.errors import Violation, refuse

if TYPE_CHECKING:
    import torch

ArrayT = TypeVar("ArrayT", "npt.NDArray[Any]", "torch.Tensor")
"""numpy arrays or torch tensors; one call's are all of one kind."""

_MASK = "response_mask"
_ADVANTAGES = "advantages"
_ROLE_PREFIX = "TENSOR_ROLE_"
_REAL = (tensor_pb2.D_TYPE_F32, np.dtype("<f4"))
_REASONS = (tensor_pb2.D_TYPE_U16, np.dtype("<u2"))
# What each output is on the wire, and in numpy.
_OUTPUT_DTYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "weights": _REAL,
    "gradient": _REAL,
    "keep_mask": (tensor_pb2.D_TYPE_U8, np.dtype("u1")),
    "token_reasons": _REASONS,
    "sequence_reasons": _REASONS,
}


@dataclass(frozen=True)
class Batch(Generic[ArrayT]):
    """One request's tensors, ready for the wire, and what is needed to shape the answer.

    Attributes:
        layout: The wire's layout.
        tensors: In the order of the arguments. Views of the caller's memory where it is
            contiguous and of a dtype that the wire carries, else converted copies.
        response_mask: The caller's mask, whose kind, shape, dtype and device the outputs take.
        num_sequences: Rows.
    """

    layout: tensor_pb2.Layout
    tensors: list[wire.WireTensor]
    response_mask: ArrayT
    num_sequences: int

    def output_shape(self, name: str) -> tuple[int, ...]:
        """The shape of the output of that name."""
        if name == "sequence_reasons":
            return (self.num_sequences,)
        return tuple(self.response_mask.shape)

    def output_dtype(self, name: str) -> Any:
        """The dtype of the output of that name, numpy's or torch's."""
        mask: Any = self.response_mask
        if name == "keep_mask":
            return mask.dtype
        dtype = _OUTPUT_DTYPES[name][1].newbyteorder("=")
        if not is_torch(mask):
            return dtype
        torch = sys.modules["torch"]
        # torch's uint16 has no bit operations.
        return torch.int32 if dtype == np.uint16 else torch.float32

    def restore(self, tensor: wire.WireTensor, destination: Any = None) -> Any:
        """An output in the caller's kind and shape, in memory of its own, or in ``destination``.

        Raises:
            ValueError: The tensor is not of the shape or dtype that its role says.
        """
        name = role_name(tensor.role)
        wire_dtype, dtype = _OUTPUT_DTYPES.get(name, (None, np.dtype("u1")))
        if tensor.dtype != wire_dtype:
            raise ValueError(f"unexpected output {name} of dtype {tensor.dtype}")
        received = np.frombuffer(tensor.data, dtype).reshape(self.output_shape(name))
        mask: Any = self.response_mask
        if is_torch(mask):
            return _to_torch(received, mask, self.output_dtype(name), destination)
        if destination is None:
            return received.astype(self.output_dtype(name))
        np.copyto(destination, received, casting="unsafe")
        return destination


def read_batch(
    inputs: Mapping[str, ArrayT | None],
    response_mask: ArrayT,
    sequence_lengths: Any,
    padded_length: int | None,
) -> Batch[ArrayT]:
    """Checks what the wire cannot express and converts.

    Args:
        inputs: Log-probs and advantages by argument name; None is left out. Advantages may be one
            per sequence, [B] or [B, 1].
        response_mask: The mask.
        sequence_lengths: Ints; their presence means the packed layout.
        padded_length: See ``Client.correct``.

    Raises:
        TypeError: Not a numpy array or torch tensor, mixed kinds or devices, or a dtype that the
            wire does not carry.
        InvalidRequestError: Shapes that do not fit together.
    """
    given = {name: array for name, array in inputs.items() if array is not None}
    arrays: dict[str, Any] = {**given, _MASK: response_mask}
    _check_kinds(arrays)
    lengths = None
    if sequence_lengths is not None:
        lengths = int_list("sequence_lengths", sequence_lengths)
    if _ADVANTAGES in arrays:
        arrays[_ADVANTAGES] = _per_token(arrays[_ADVANTAGES], arrays[_MASK], lengths)
    violations = _shape_violations(arrays, packed=lengths is not None)
    if padded_length is not None and lengths is None:
        violations.append(Violation("padded_length", "is only for the packed layout"))
    if violations:
        raise refuse(violations)
    layout = tensor_pb2.Layout()
    if lengths is None:
        num_sequences = int(response_mask.shape[0])
        layout.padded.num_sequences = num_sequences
        layout.padded.length = int(response_mask.shape[1])
    else:
        num_sequences = len(lengths)
        layout.packed.sequence_lengths.extend(lengths)
        layout.packed.SetInParent()
        if padded_length is not None:
            layout.packed.padded_length = padded_length
    return Batch(
        layout=layout,
        tensors=[_to_wire(name, array) for name, array in arrays.items()],
        response_mask=response_mask,
        num_sequences=num_sequences,
    )


def role_name(role: int) -> str:
    """The role as an argument or output is called: "weights" for TENSOR_ROLE_WEIGHTS."""
    return str(tensor_pb2.TensorRole.Name(role)).removeprefix(_ROLE_PREFIX).lower()


def int_list(name: str, values: Iterable[Any]) -> list[int]:
    """Ints out of a sequence of ints, a numpy array or a torch tensor.

    Raises:
        TypeError: There is something else in it.
    """
    items = values.tolist() if hasattr(values, "tolist") else list(values)
    if not isinstance(items, list) or not all(_is_int(item) for item in items):
        raise TypeError(f"{name} must be a one-dimensional sequence of integers")
    return [int(item) for item in items]


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_torch(array: Any) -> bool:
    """Whether it is a torch tensor."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(array, module.Tensor)


def _check_kinds(arrays: Mapping[str, Any]) -> None:
    mask_is_torch = is_torch(arrays[_MASK])
    # The mask first: the others are compared with it.
    for name in [_MASK, *arrays]:
        array = arrays[name]
        if not is_torch(array) and not isinstance(array, np.ndarray):
            raise TypeError(
                f"{name} must be a numpy array or a torch tensor, not {type(array).__name__}"
            )
        if is_torch(array) != mask_is_torch:
            kinds = ("a numpy array", "a torch tensor")
            raise TypeError(
                f"{name} is {kinds[not mask_is_torch]} but {_MASK} is {kinds[mask_is_torch]}; "
                "pass one kind"
            )
        if mask_is_torch and array.device != arrays[_MASK].device:
            raise TypeError(
                f"{name} is on {array.device} but {_MASK} is on {arrays[_MASK].device}; "
                "pass tensors of one device"
            )


def _per_token(advantages: Any, mask: Any, lengths: list[int] | None) -> Any:
    """Advantages of one per sequence, [B] or [B, 1], for every token; others as they are."""
    shape = tuple(advantages.shape)
    rows = len(lengths) if lengths is not None else mask.shape[0] if mask.ndim == 2 else -1
    if shape == tuple(mask.shape) or shape not in ((rows,), (rows, 1)):
        return advantages
    if lengths is None:
        # A view; it is copied once, with everything else that is sent.
        column = advantages.reshape(rows, 1)
        if is_torch(advantages):
            return column.expand(tuple(mask.shape))
        return np.broadcast_to(column, mask.shape)
    if min(lengths, default=0) < 0:  # the server's to refuse
        return advantages
    if is_torch(advantages):
        torch = sys.modules["torch"]
        repeats = torch.tensor(lengths, dtype=torch.int64, device=advantages.device)
        return torch.repeat_interleave(advantages.reshape(rows), repeats)
    return np.repeat(advantages.reshape(rows), lengths)


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
    shape = tuple(arrays[_MASK].shape)
    violations += [
        Violation(name, f"has shape {tuple(array.shape)}, but {_MASK} has {shape}")
        for name, array in arrays.items()
        if array.ndim == ndim and len(shape) == ndim and tuple(array.shape) != shape
    ]
    return violations


def _to_wire(name: str, array: Any) -> wire.WireTensor:
    role = tensor_pb2.TensorRole.Value(_ROLE_PREFIX + name.upper())
    if is_torch(array):
        dtype, flat = _torch_mask(array) if name == _MASK else _torch_real(name, array)
    else:
        dtype, flat = _numpy_mask(array) if name == _MASK else _numpy_real(name, array)
    return wire.WireTensor(role, dtype, flat.reshape(-1).view(np.uint8).data)


def _numpy_real(name: str, array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    # By kind and size, because a dtype of the other byte order is not equal to np.float32.
    if array.dtype.kind != "f" or array.dtype.itemsize not in (2, 4, 8):
        raise TypeError(
            f"{name} must be float32, float16 or float64 (sent as float32), not {array.dtype}"
        )
    if array.dtype.itemsize == 2:
        return tensor_pb2.D_TYPE_F16, np.ascontiguousarray(array, "<f2")
    # Beyond float32 is infinity, which is the non-finite policy's business, not a warning.
    with np.errstate(over="ignore"):
        return tensor_pb2.D_TYPE_F32, np.ascontiguousarray(array, "<f4")


def _numpy_mask(array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    if array.dtype == np.bool_ or array.dtype == np.uint8:
        # The server checks that bytes are 0 or 1.
        return tensor_pb2.D_TYPE_U8, np.ascontiguousarray(array).view(np.uint8)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{_MASK} must be boolean, integer or floating, not {array.dtype}")
    if not ((array == 0) | (array == 1)).all():
        raise refuse([Violation(_MASK, "must hold only 0 and 1")])
    return tensor_pb2.D_TYPE_U8, np.ascontiguousarray(array, np.uint8)


def _torch_real(name: str, tensor: torch.Tensor) -> tuple[int, npt.NDArray[Any]]:
    torch = sys.modules["torch"]
    dtypes = {
        torch.float32: tensor_pb2.D_TYPE_F32,
        torch.float64: tensor_pb2.D_TYPE_F32,
        torch.float16: tensor_pb2.D_TYPE_F16,
        torch.bfloat16: tensor_pb2.D_TYPE_BF16,
    }
    if tensor.dtype not in dtypes:
        raise TypeError(
            f"{name} must be float32, bfloat16, float16 or float64 (sent as float32), "
            f"not {tensor.dtype}"
        )
    if tensor.dtype == torch.float64:
        tensor = tensor.to(torch.float32)
    return dtypes[tensor.dtype], _torch_bytes(tensor)


def _torch_mask(tensor: torch.Tensor) -> tuple[int, npt.NDArray[Any]]:
    torch = sys.modules["torch"]
    if tensor.is_complex():
        raise TypeError(f"{_MASK} must be boolean, integer or floating, not {tensor.dtype}")
    if tensor.dtype not in (torch.bool, torch.uint8):
        if not bool(((tensor == 0) | (tensor == 1)).all()):
            raise refuse([Violation(_MASK, "must hold only 0 and 1")])
        tensor = tensor.to(torch.uint8)
    return tensor_pb2.D_TYPE_U8, _torch_bytes(tensor)


def _torch_bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The tensor's bytes in host memory; its own if it is contiguous and there already."""
    torch = sys.modules["torch"]
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    array: npt.NDArray[np.uint8] = flat.cpu().numpy()
    return array


def _to_torch(
    array: npt.NDArray[Any], mask: torch.Tensor, dtype: torch.dtype, destination: Any
) -> Any:
    torch = sys.modules["torch"]
    if destination is None:
        # torch knows no read-only memory, and its uint16 no conversions.
        owned = array.astype(np.int32) if array.dtype == np.uint16 else array.copy()
        return torch.from_numpy(owned).to(mask.device, dtype)
    in_numpy_too = (torch.float32, torch.int32, torch.bool, torch.uint8, torch.int64)
    if destination.device.type == "cpu" and dtype in in_numpy_too:
        np.copyto(destination.numpy(), array, casting="unsafe")
        # What numpy writes, autograd does not see: an in-place operation on none of the elements
        # tells it, so that a backward that needs what was here before is an error.
        destination.view(-1)[:0].zero_()
        return destination
    return destination.copy_(_to_torch(array, mask, dtype, None))
