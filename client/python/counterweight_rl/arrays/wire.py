"""Tensors in the wire's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from counterweight_rl.contract.tensors import DType

ELEMENT_BYTES: dict[int, int] = {
    DType.F32: 4,
    DType.BF16: 2,
    DType.F16: 2,
    DType.U8: 1,
    DType.U16: 2,
    DType.I32: 4,
}
"""The size of each dtype that tensors have."""


@dataclass(frozen=True)
class WireTensor:
    """A tensor in the wire's format.

    Attributes:
        role: The proto's number.
        dtype: The proto's number.
        data: Contiguous bytes.
        owned: Whether only this package uses them; else they may be the caller's array.
    """

    role: int
    dtype: int
    data: memoryview
    owned: bool = False

    @property
    def num_bytes(self) -> int:
        """The tensor's size on the wire."""
        return self.data.nbytes


@dataclass(frozen=True)
class AnswerTensor:
    """A tensor of an answer.

    Attributes:
        role: The proto's number.
        dtype: The proto's number.
        data: Its bytes; empty if they are elsewhere.
        shared_memory: The message of the place that has them; None: there is none.
    """

    role: int
    dtype: int
    data: memoryview
    shared_memory: Any = None
