"""A pytest plugin with which a peer's tests of a GPU run without one: "cuda" is the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        named = {name: _place(value) for name, value in (kwargs or {}).items()}
        return func(*map(_place, args), **named)


def _place(value: Any) -> Any:
    is_place = isinstance(value, str | torch.device)
    return "cpu" if is_place and str(value).startswith("cuda") else value


def pytest_collection_finish() -> None:
    torch.cuda.is_available = lambda: True
    _OnCpu().__enter__()
