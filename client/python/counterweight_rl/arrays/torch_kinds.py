"""torch tensors with elements that do not lie in memory of their own.

This module never imports torch: a tensor's caller has imported it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def unreadable(name: str, tensor: torch.Tensor) -> str | None:
    """Returns why the elements of the argument cannot be read, and what to pass instead.

    None: a strided tensor of whole memory, or a nested one.
    """
    torch = sys.modules["torch"]
    kind = type(tensor).__name__
    if hasattr(tensor, "full_tensor") and hasattr(tensor, "to_local"):
        return f"is a {kind}; pass {name}.full_tensor(), or {name}.to_local() for a rank's own rows"
    if tensor.is_nested:
        return None
    parameter = torch.nn.parameter
    if isinstance(tensor, (parameter.UninitializedParameter, parameter.UninitializedBuffer)):
        return f"is a {kind}, which has no shape yet"
    if tensor.device.type == "meta":
        return f"is a {kind} on the device meta, which has no data"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"is a {kind}, a tensor whose class keeps its elements elsewhere; pass a plain one"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}; pass {name}.to_dense()"
    if tensor.is_quantized:
        return f"is quantized; pass {name}.dequantize()"
    functorch = getattr(torch._C, "_functorch", None)
    if functorch is not None and functorch.is_functorch_wrapped_tensor(tensor):
        return "is traced by torch.func (vmap, grad, ...), which passes no data; call it outside"
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    if tensor.numel() and elements <= tensor.storage_offset() + sum(
        (n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        return "has lost its storage, as parameters do while FSDP shards them"
    return None


def plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor; one that is stored negated, as a copy.

    Raises:
        TypeError: Its elements cannot be read; the message names the argument and the way out.
    """
    problem = unreadable(name, tensor)
    if problem is not None:
        raise TypeError(f"{name} {problem}")
    return tensor if tensor.is_nested or not tensor.is_neg() else tensor.resolve_neg()


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a contiguous tensor, uint8 [num_bytes], without a copy."""
    torch = sys.modules["torch"]
    # torch calls any stride of a dimension of one element contiguous, and then refuses to view it.
    flat = tensor.detach().reshape(-1).as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8)
