"""Totals of a step, made of its sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from counterweight_rl.config import GlobalCounts
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.result import RuleSummary, Staleness


@dataclass(frozen=True)
class StepTotals:
    """The answer of one call with all rows of a step, bit for bit, without arrays.

    Attributes:
        sums: The sums of all parts.
        metrics: As in Result.
        rules: As in Result.
        loss: Sum of the parts' losses; None if they have none.
        non_finite_tokens: As in Result.
        warnings: As in Result, but for those about tensors that the method does not read.
        staleness: As in Result.
        counts: The counts that the method reads, for the calls that compute the step's losses; None
            if it reads none.
        counts_refusal: Why the method's loss cannot divide by the counts of a step; empty if it
            can, or has none.
    """

    sums: PartialSums
    metrics: Mapping[str, float]
    rules: tuple[RuleSummary, ...]
    loss: float | None
    non_finite_tokens: int
    warnings: tuple[str, ...]
    staleness: Staleness | None
    counts: GlobalCounts | None
    counts_refusal: str
