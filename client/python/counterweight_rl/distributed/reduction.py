"""Sums over the ranks of a group: torch.distributed's, an MPI-like one, or none."""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np

from counterweight_rl.errors import CounterweightError
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.status import StatusCode

# Vectors have these lengths, or a power of two of them, so that a rank without a part knows them:
# 8 KiB together.
_SUMS, _MAXIMA = 944, 80
# Largest number of vectors that a sum of float64 bins holds without an error.
MOST_VECTORS = 8192


class Group:
    """Ranks whose parts are one step.

    Attributes:
        size: The number of ranks.
        rank: This one's number.
    """

    def __init__(self, group: Any) -> None:
        """Takes a process group of torch.distributed, an MPI communicator, or None: this process.

        Raises:
            TypeError: It is something else.
        """
        self._group = group
        self._is_mpi = hasattr(group, "Allreduce")
        if group is None:
            self.size, self.rank = 1, 0
        elif self._is_mpi:
            self.size, self.rank = int(group.Get_size()), int(group.Get_rank())
        else:
            self._torch = _distributed(group)
            self.size = int(self._torch.get_world_size(group))
            self.rank = int(self._torch.get_rank(group))

    def reduce(self, part: PartialSums | None) -> PartialSums | None:
        """Adds the ranks' parts: one all-reduce of SUM and one of MAX. None: no rank has a part.

        Raises:
            CounterweightError: A rank did not come (DEADLINE_EXCEEDED), or has another method.
        """
        if self.size == 1:
            return part
        lengths = (0, 0) if part is None else (len(part.sums), len(part.maxima))
        sums = np.zeros(_capacity(lengths[0], _SUMS))
        maxima = np.full(_capacity(lengths[1] + 2, _MAXIMA), -np.inf)
        maxima[:2] = lengths
        if part is not None:
            sums[: lengths[0]] = part.sums
            maxima[2 : 2 + lengths[1]] = part.maxima
        try:
            sums = self._all_reduce(sums, "SUM")
            maxima = self._all_reduce(maxima, "MAX")
        except Exception as error:
            raise CounterweightError(
                f"the step's all-reduce over {self.size} ranks failed: every rank has to call "
                f"reduce() and close() within the group's timeout, with one method: {error}",
                code=StatusCode.DEADLINE_EXCEEDED,
            ) from error
        num_sums, num_maxima = (int(length) for length in maxima[:2])
        if part is not None and lengths != (num_sums, num_maxima):
            raise CounterweightError(
                f"this rank's sums have {lengths[0]} and {lengths[1]} numbers, another rank's "
                f"{num_sums} and {num_maxima}: all ranks need one method and the same options",
                code=StatusCode.INVALID_ARGUMENT,
            )
        if num_sums == 0:
            return None
        return PartialSums(sums[:num_sums], maxima[2 : 2 + num_maxima])

    def gather(self, rows: Any) -> tuple[Any, int]:
        """Returns the rows of all ranks, [N, columns], and the place of this one's first row.

        Args:
            rows: [K, columns], float64; K may differ, and be 0.

        Raises:
            CounterweightError: A rank did not come (DEADLINE_EXCEEDED).
        """
        if self.size == 1:
            return rows, 0
        counts = np.zeros(self.size)
        counts[self.rank] = len(rows)
        try:
            counts = self._all_reduce(counts, "SUM").astype(int)
            first = int(counts[: self.rank].sum())
            gathered = np.zeros((int(counts.sum()), rows.shape[1]))
            gathered[first : first + len(rows)] = rows
            # Each number is one rank's, so that its sum is exact.
            return self._all_reduce(gathered, "SUM"), first
        except Exception as error:
            raise CounterweightError(
                f"rows of {self.size} ranks cannot be gathered: every rank has to call "
                f"group_advantages() within the group's timeout: {error}",
                code=StatusCode.DEADLINE_EXCEEDED,
            ) from error

    def _all_reduce(self, vector: Any, operation: Literal["SUM", "MAX"]) -> Any:
        if self._is_mpi:
            mpi = sys.modules[type(self._group).__module__]
            self._group.Allreduce(mpi.IN_PLACE, vector, op=getattr(mpi, operation))
            return vector
        import torch

        tensor = torch.from_numpy(vector)
        # NCCL reduces tensors on its device alone.
        if "gloo" not in self._torch.get_backend(self._group):
            tensor = tensor.cuda()
        self._torch.all_reduce(
            tensor, op=getattr(self._torch.ReduceOp, operation), group=self._group
        )
        return tensor.cpu().numpy()


def add(part: PartialSums, sums: PartialSums | None) -> PartialSums:
    """Adds a part in place."""
    if sums is None:
        return PartialSums(part.sums.copy(), part.maxima.copy())
    if (len(part.sums), len(part.maxima)) != (len(sums.sums), len(sums.maxima)):
        raise ValueError(
            "the calls of one step must have the same tensors and options: their sums have "
            f"{len(sums.sums)} and {len(part.sums)} numbers"
        )
    np.add(sums.sums, part.sums, out=sums.sums)
    np.maximum(sums.maxima, part.maxima, out=sums.maxima)
    return sums


def _distributed(group: Any) -> Any:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not isinstance(group, distributed.ProcessGroup):
        raise TypeError(
            "group must be a process group of torch.distributed, an MPI communicator or None, "
            f"not {type(group).__name__}"
        )
    return distributed


def _capacity(length: int, least: int) -> int:
    capacity = least
    while capacity < length:
        capacity *= 2
    return capacity
