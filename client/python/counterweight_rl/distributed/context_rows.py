"""Rows whose positions are spread over the ranks of a context-parallel group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import torch

Layout = Literal["contiguous", "zigzag"]


class ContextRows:
    """Sends each row to one owner, and what was computed of it back.

        rows = ContextRows(cp_group, "zigzag", num_rows)
        owned = rows.gather({"old_log_probs": shard, ...})  # whole rows, those of this rank
        result = step.finish(**owned)
        gradient = rows.scatter(result.gradient)            # this rank's shard of every row

    A rank's shard has the positions of all rows that it holds: "contiguous", the rank-th of as many
    equal pieces as there are ranks; "zigzag", the rank-th and the rank-th last of twice as many,
    one behind the other, as attention over causal masks balances them.
    """

    def __init__(
        self,
        group: Any,
        layout: Layout,
        num_rows: int,
        lengths: Sequence[int] | None = None,
    ) -> None:
        """Chooses the owners; sends nothing.

        Args:
            group: The context-parallel process group of torch.distributed.
            layout: The positions of a rank's shard.
            num_rows: Rows of the micro-batch, the same on every rank.
            lengths: Tokens of each row, the same on every rank, so that owners get equal work;
                None: all are as long.

        Raises:
            ValueError: An unknown layout, or not one length for each row.
        """
        if layout not in get_args(Layout):
            choices = ", ".join(get_args(Layout))
            raise ValueError(f"layout must be one of {choices}; got {layout!r}")
        if lengths is not None and len(lengths) != num_rows:
            raise ValueError(f"lengths has {len(lengths)} numbers for {num_rows} rows")
        import torch.distributed

        self._distributed = torch.distributed
        self._group = group
        self._layout = layout
        self._size = torch.distributed.get_world_size(group)
        self._rank = torch.distributed.get_rank(group)
        longest_first = sorted(
            range(num_rows), key=lambda row: 0 if lengths is None else -int(lengths[row])
        )
        self._rows = [longest_first[owner :: self._size] for owner in range(self._size)]

    @property
    def owned(self) -> list[int]:
        """The rows of this rank, in the order of ``gather``."""
        return self._rows[self._rank]

    def gather(self, shards: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns the whole rows of this rank.

        Args:
            shards: By name, this rank's [num_rows, positions] of every row, or [num_rows] numbers
                of rows, which every rank has.

        Raises:
            ValueError: A shard has another shape.
        """
        return {name: self._gather(name, shard) for name, shard in shards.items()}

    def scatter(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns this rank's shard of every row; the inverse of ``gather``.

        Args:
            rows: [rows of this rank, positions], what was computed of them.
        """
        import torch

        width = rows.shape[1] // self._size
        pieces = [self._pieces(rows, rank) for rank in range(self._size)]
        sent = torch.cat([piece.reshape(-1) for piece in pieces])
        counts = [len(of_owner) * width for of_owner in self._rows]
        received = rows.new_empty(sum(counts))
        self._exchange(received, sent, counts, [len(self.owned) * width] * self._size)
        shard = rows.new_empty((sum(map(len, self._rows)), width))
        for of_owner, part in zip(self._rows, received.split(counts), strict=True):
            shard[of_owner] = part.view(len(of_owner), width)
        return shard

    def _gather(self, name: str, shard: torch.Tensor) -> torch.Tensor:
        import torch

        num_rows = sum(map(len, self._rows))
        parts = 2 if self._layout == "zigzag" else 1
        if shard.ndim not in (1, 2) or shard.shape[0] != num_rows:
            raise ValueError(f"{name} must be of [{num_rows}, positions], not {tuple(shard.shape)}")
        if shard.ndim == 1:
            return shard[self.owned]
        if shard.shape[1] % parts:
            raise ValueError(
                f"{name} has {shard.shape[1]} positions, which are not two equal pieces"
            )
        width = shard.shape[1]
        sent = torch.cat([shard[of_owner].reshape(-1) for of_owner in self._rows])
        received = shard.new_empty(len(self.owned) * width * self._size)
        counts = [len(of_owner) * width for of_owner in self._rows]
        self._exchange(received, sent, [len(self.owned) * width] * self._size, counts)
        whole = shard.new_empty((len(self.owned), width * self._size))
        for rank, part in enumerate(received.split(len(self.owned) * width)):
            self._place(whole, rank, part.view(len(self.owned), width))
        return whole

    def _spans(self, rank: int, width: int) -> list[slice]:
        """The positions of a rank's shard in a row, in its order."""
        if self._layout == "contiguous":
            return [slice(rank * width, (rank + 1) * width)]
        half = width // 2
        last = 2 * self._size - 1 - rank
        return [slice(each * half, (each + 1) * half) for each in (rank, last)]

    def _pieces(self, rows: torch.Tensor, rank: int) -> torch.Tensor:
        import torch

        width = rows.shape[1] // self._size
        return torch.cat([rows[:, span] for span in self._spans(rank, width)], dim=1)

    def _place(self, whole: torch.Tensor, rank: int, shard: torch.Tensor) -> None:
        begin = 0
        for span in self._spans(rank, shard.shape[1]):
            end = begin + span.stop - span.start
            whole[:, span] = shard[:, begin:end]
            begin = end

    def _exchange(
        self, received: torch.Tensor, sent: torch.Tensor, into: list[int], out_of: list[int]
    ) -> None:
        self._distributed.all_to_all_single(
            received, sent, output_split_sizes=into, input_split_sizes=out_of, group=self._group
        )
