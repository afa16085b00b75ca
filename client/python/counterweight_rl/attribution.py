"""Why a batch drifts: its k3 by cause, by kind of token and by sequence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from counterweight_rl import messages

_WIDTH = 80
_ROLE = "TENSOR_ROLE_"


@dataclass(frozen=True)
class Causes:
    """Sums in nats over tokens; None needs log-probs that were not given.

    Of rollout q, old o and current c: k3(c - q) = k3(o - q) + k3(c - o) + (e^(c-o) - 1)
    (e^(o-q) - 1), with k3(l) = e^l - 1 - l.

    Attributes:
        k3: Of the ratio; the sum of the three causes.
        kl: Of -l.
        k3_engine_staleness: k3(o - q): another engine, and older weights.
        k3_update: k3(c - o): updates within the step.
        k3_interaction: The last term. Above 0 the update goes on in the drift's direction.
        kl_engine_staleness: Of q - o.
        kl_update: Of o - c.
        k3_engine: The engine's part of k3_engine_staleness, from 200 fresh tokens on.
        fresh_tokens: Those of sequences whose every token has staleness 0.
        fresh_k3: Of old over rollout, over these.
    """

    k3: float
    kl: float
    k3_engine_staleness: float | None
    k3_update: float | None
    k3_interaction: float | None
    kl_engine_staleness: float | None
    kl_update: float | None
    k3_engine: float | None
    fresh_tokens: int
    fresh_k3: float


@dataclass(frozen=True)
class Bucket:
    """Tokens that have a number in common; sums in nats.

    Attributes:
        first: Least number of the bucket, which ends where the next begins.
        tokens: Its tokens.
        log_ratio: Sum of l.
        k3: Sum of k3(l).
        k3_expected: The sum if each token had the mean of all tokens of its magnitude; of
            positions only.
    """

    first: float
    tokens: int
    log_ratio: float
    k3: float
    k3_expected: float | None


@dataclass(frozen=True)
class HeavySequence:
    """A sequence with much of the drift.

    Attributes:
        sequence: Its index in the batch.
        tokens: Its tokens.
        k3: Sum of k3(l) over them, nats.
    """

    sequence: int
    tokens: int
    k3: float


@dataclass(frozen=True, repr=False)
class Attribution:
    """Why the examined tokens drift; ``explain()`` is for a person.

    l = log numerator - log denominator. Buckets are ascending, without empty ones.

    Attributes:
        numerator: "current_log_probs", or "old_log_probs" without them.
        denominator: "rollout_log_probs", or "old_log_probs" without them.
        tokens: The examined tokens.
        sequences: Sequences with such tokens.
        causes: The sums over all of these tokens.
        by_magnitude: By -log denominator, nats.
        by_position: By the token's place among its sequence's tokens.
        by_length: By the sequence's tokens.
        by_log_ratio: By l.
        heaviest: The sequences with the largest k3, at most 8, descending.
        sentence: The causes, and where most of the drift lies.
    """

    numerator: str
    denominator: str
    tokens: int
    sequences: int
    causes: Causes
    by_magnitude: Sequence[Bucket]
    by_position: Sequence[Bucket]
    by_length: Sequence[Bucket]
    by_log_ratio: Sequence[Bucket]
    heaviest: Sequence[HeavySequence]
    sentence: str = field(repr=False)

    def explain(self) -> str:
        """The sentence, and the table."""
        return "\n".join([*self.lines(), self.table()])

    def lines(self) -> list[str]:
        """The sentence in lines of 80 characters."""
        return textwrap.wrap(self.sentence, _WIDTH)

    def table(self) -> str:
        """Shares of tokens and of k3 by magnitude and position, and the heaviest sequences."""
        lines = [f"{'tokens by':14}{'from':>7}{'tokens':>9}{'k3':>9}  observed/expected"]
        lines += self._rows("-log prob", self.by_magnitude)
        lines += self._rows("position", self.by_position)
        heavy = ", ".join(
            f"{each.sequence} ({self._share(each.k3)})" for each in self.heaviest if each.k3 > 0
        )
        if heavy:
            lines += textwrap.wrap(f"heaviest sequences: {heavy}", _WIDTH)
        return "\n".join(lines)

    def _rows(self, name: str, buckets: Sequence[Bucket]) -> Iterator[str]:
        for bucket in buckets:
            tokens = f"{100 * bucket.tokens / self.tokens:.3g} %"
            row = f"{name:14}{bucket.first:7g}{tokens:>9}{self._share(bucket.k3):>9}"
            if bucket.k3_expected:
                row += f"  {bucket.k3 / bucket.k3_expected:.2g}"
            yield row
            name = ""

    def _share(self, k3: float) -> str:
        whole = self.causes.k3
        return f"{100 * k3 / whole if whole else 0:.3g} %"

    def __repr__(self) -> str:
        return f"<Attribution: {self.sentence}>"


def read(message: messages.Message | None) -> Attribution | None:
    """Returns the attribution in a diagnosis' message; None if it has none."""
    found: Attribution | None = messages.from_message(Attribution | None, message)
    if found is None:
        return None
    return replace(
        found,
        numerator=found.numerator.removeprefix(_ROLE).lower(),
        denominator=found.denominator.removeprefix(_ROLE).lower(),
    )
