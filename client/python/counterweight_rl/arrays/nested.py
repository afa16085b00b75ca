"""torch's nested tensors: sequences of several lengths, which are the packed layout.

A tensor of the layout ``torch.jagged`` has packed values and offsets, one of ``torch.strided``
(the older one) a part for each sequence. This module never imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from counterweight_rl.errors import Violation, refuse

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Nested:
    """The layout of a call's nested tensors.

    Attributes:
        lengths: Elements of each sequence.
        offsets: Of the response mask, which answers share, so that torch lets them meet its other
            tensors; None: the layout is torch.strided.
    """

    lengths: list[int]
    offsets: Any

    def nest(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns a packed tensor in this layout."""
        torch = sys.modules["torch"]
        made: Any
        if self.offsets is not None:
            made = torch.nested.nested_tensor_from_jagged(flat, self.offsets)
        else:
            made = torch.nested.as_nested_tensor(list(flat.split(self.lengths)))
        return made


def is_nested(array: Any) -> bool:
    """Returns whether it is a nested tensor of torch."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(array, module.Tensor) and bool(array.is_nested)


def flatten(name: str, tensor: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """Returns the elements of a nested tensor, packed (autograd follows), and the lengths.

    Raises:
        TypeError: It is not [B, lengths], or has holes.
    """
    torch: Any = sys.modules["torch"]
    if tensor.dim() != 2 or getattr(tensor, "_ragged_idx", 1) != 1:
        shape = [tensor.size(0), *("lengths" if n == 1 else "..." for n in range(1, tensor.dim()))]
        raise TypeError(f"{name} must be a nested tensor of [B, lengths], not of {shape}")
    if tensor.layout is torch.strided:
        parts = tensor.unbind()
        made = torch.cat(parts) if parts else torch.empty(0, dtype=tensor.dtype)
        return made, [len(part) for part in parts]
    values: Any = tensor.values()
    offsets: list[int] = tensor.offsets().tolist()
    # Nested tensors of jagged layout have more methods than torch's annotations.
    nested: Any = tensor
    if nested.lengths() is not None or offsets[0] != 0 or offsets[-1] != len(values):
        raise TypeError(f"{name} is a nested tensor with holes; pass {name}.contiguous()")
    return values, [end - begin for begin, end in pairwise(offsets)]


def unnest(
    inputs: Mapping[str, Any], mask_name: str, mask: Any, sequence_lengths: Any
) -> tuple[dict[str, Any], Any, Nested | None]:
    """Returns the inputs and the mask packed, and the layout of answers; unchanged: None.

    Args:
        inputs: Arrays by argument; None is kept. Advantages may be one per sequence.
        mask_name: The argument of the mask.
        mask: The mask.
        sequence_lengths: The argument, which nested tensors replace.

    Raises:
        TypeError: Some are nested and others are not, or one cannot be packed.
        InvalidRequestError: Their lengths differ.
    """
    found = {
        name: array for name, array in [(mask_name, mask), *inputs.items()] if is_nested(array)
    }
    if not found:
        return dict(inputs), mask, None
    if sequence_lengths is not None:
        problem = f"{next(iter(found))} is nested and has the lengths; leave it out"
        raise refuse([Violation("sequence_lengths", problem)])
    if mask_name not in found:
        raise TypeError(_mixed(next(iter(found)), mask_name))
    packed_mask, lengths = flatten(mask_name, mask)
    violations = []
    packed = dict(inputs)
    for name, array in inputs.items():
        if name in found:
            packed[name], theirs = flatten(name, array)
            if theirs != lengths:
                violations.append(Violation(name, _difference(theirs, lengths, mask_name)))
        elif _is_one_per_row(name, array, len(lengths)):
            packed[name] = array.reshape(len(lengths), 1)
        elif array is not None:
            raise TypeError(_mixed(mask_name, name))
    if violations:
        raise refuse(violations)
    torch: Any = sys.modules["torch"]
    offsets = None if mask.layout is torch.strided else mask.offsets()
    return packed, packed_mask, Nested(lengths, offsets)


def _mixed(nested: str, other: str) -> str:
    return (
        f"{nested} is a nested tensor and {other} is none; pass all nested, or all packed with "
        "sequence_lengths"
    )


def _is_one_per_row(name: str, array: Any, rows: int) -> bool:
    return name == "advantages" and tuple(getattr(array, "shape", ())) in ((rows,), (rows, 1))


def _difference(theirs: list[int], lengths: list[int], mask_name: str) -> str:
    if len(theirs) != len(lengths):
        return f"has {len(theirs)} sequences, but {mask_name} has {len(lengths)}"
    row = next(i for i, (a, b) in enumerate(zip(theirs, lengths, strict=True)) if a != b)
    return f"has {theirs[row]} elements in sequence {row}, but {mask_name} has {lengths[row]}"
