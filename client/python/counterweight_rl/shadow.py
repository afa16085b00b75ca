"""Methods that are described, not applied: what each would do to a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from counterweight_rl import messages

if TYPE_CHECKING:
    from counterweight_rl.config import Method


@dataclass(frozen=True)
class Shadow:
    """The effect that a method would have on a batch, over its tokens with finite numbers.

    It describes the batch, and does not predict which method learns best: in 54 training runs no
    number of this kind did. r is a token's ratio, w the method's weight of it, 0 where a rule drops
    it, and a the magnitude of its advantage, 1 without ``advantages``: ``a r`` would be the
    token's gradient in log-prob space without bias, and ``a w`` is the method's.

    Attributes:
        method: A preset's name, "config", or the system of a block.
        tokens: Those that are described.
        kept_token_fraction: Share of those that no rule drops; NaN without tokens.
        effective_sample_size: As the metric of that name, in [0, 1]. None for a method without
            weights.
        kept_effective_sample_size: The same of the kept tokens' weights, over all tokens.
        bias: sum a abs(r - w) / sum a r.
        norm_ratio: sqrt(sum (a w)^2 / sum (a r)^2).
        cosine: sum (a w) (a r) over the root of both sums, in [0, 1].
    """

    method: str
    tokens: int
    kept_token_fraction: float
    effective_sample_size: float | None
    kept_effective_sample_size: float | None
    bias: float
    norm_ratio: float
    cosine: float


def to_messages(shadows: Iterable[Method]) -> list[messages.Message]:
    """Returns the methods' messages.

    Raises:
        TypeError: It is one method, or no list of them.
        ValueError: A method's arguments are wrong.
    """
    if isinstance(shadows, str) or not isinstance(shadows, Iterable):
        raise TypeError(f"shadows must be a list of methods, not {type(shadows).__name__}")
    return [messages.method_to_message(each) for each in shadows]


def read(answer: Iterable[messages.Message]) -> tuple[Shadow, ...]:
    """Reads the answer's messages."""
    names = [each.name for each in fields(Shadow)]
    return tuple(
        Shadow(**{name: messages.field(Shadow, name, message) for name in names})
        for message in answer
    )


def lines(shadows: Sequence[Shadow]) -> list[str]:
    """A table, and what it does not say."""
    heads = ("method", "kept", "ESS", "kept ESS", "bias", "norm", "cosine")
    rows: list[tuple[str, ...]] = [heads]
    for each in shadows:
        sizes = (each.effective_sample_size, each.kept_effective_sample_size)
        cells = ["-" if size is None else f"{size:.3f}" for size in sizes]
        numbers = (f"{each.bias:.3g}", f"{each.norm_ratio:.3g}", f"{each.cosine:.3f}")
        rows.append((each.method, f"{each.kept_token_fraction:.3f}", *cells, *numbers))
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    table = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return [*table, "Of this batch; no such number predicted which method learns best."]
