"""The books of one step: what its answers issued, and what its losses applied."""

from __future__ import annotations

import collections
import logging
import re
from typing import TYPE_CHECKING, Any

from counterweight_rl.applied_receipt import applied
from counterweight_rl.arguments import integer, text
from counterweight_rl.errors import CounterweightError
from counterweight_rl.receipt import Receipt, add
from counterweight_rl.result import Result
from counterweight_rl.step_report import COUNT

if TYPE_CHECKING:
    from counterweight_rl.client import Client
    from counterweight_rl.step_report import StepReport

REPORT_SECONDS = 5.0
"""Longest wait for a server that does not answer: training goes on without its report."""

MOST_REASONS = 8
"""Reasons of skipped batches that a report may have."""

_REASON = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_log = logging.getLogger(__name__)


class StepBooks:
    """Adds receipts up and reports them once. For one thread."""

    def __init__(self, labels: dict[str, Any], ranks: int) -> None:
        """Keeps no books without the labels run and step."""
        self._labels = labels
        self._ranks = ranks
        self._issued: Receipt | None = None
        self._issued_last: Receipt | None = None
        self._applied: Receipt | None = None
        self._tokens = 0
        self._skipped: collections.Counter[str] = collections.Counter()
        self._num_ratios = self._num_ratios_of_one = 0
        self._is_kept = {"run", "step"} <= labels.keys()
        self._is_reported = not self._is_kept

    def issue(self, result: Result[Any], micro: dict[str, Any]) -> None:
        """Enters the weights and the mask of an answer."""
        if self._is_reported:
            return
        mask = micro["response_mask"]
        receipt = applied(
            result.weights,
            mask if result.keep_mask is None else result.keep_mask,
            response_mask=mask,
            sequence_lengths=micro.get("sequence_lengths"),
        )
        self._tokens += receipt.tokens + receipt.dropped_tokens
        self._issued = add(self._issued, receipt)

    def issue_again(self, result: Result[Any], micro: dict[str, Any]) -> None:
        """Enters weights that replace those of ``issue``: of the step, not of a micro-batch."""
        if self._is_reported or result.weights is None:
            return
        mask = micro["response_mask"] if result.keep_mask is None else result.keep_mask
        lengths = micro.get("sequence_lengths")
        receipt = applied(result.weights, mask, sequence_lengths=lengths)
        self._issued_last = add(self._issued_last, receipt)

    def apply(self, receipt: Receipt) -> None:
        """Enters the weights and the mask that a loss used.

        Raises:
            ValueError: The step reports nothing, or has reported.
        """
        self._check_open("applied()")
        self._applied = add(self._applied, receipt)

    def skip(self, reason: str, batches: int, tokens: int) -> None:
        """Enters batches that were trained without a correction.

        Raises:
            TypeError: An argument is of a wrong type.
            ValueError: One is out of its range, or as ``apply``.
        """
        self._check_open("skipped()")
        if not _REASON.fullmatch(text("reason", reason)):
            raise ValueError(f"reason must match {_REASON.pattern}; got {reason!r}")
        integer("batches", batches, COUNT)
        integer("tokens", tokens, COUNT)
        if reason not in self._skipped and len(self._skipped) == MOST_REASONS:
            raise ValueError(f"a step has at most {MOST_REASONS} reasons; {reason!r} is one more")
        self._skipped[reason] += batches
        self._tokens += tokens

    def _check_open(self, function: str) -> None:
        if not self._is_kept:
            raise ValueError(f"{function} needs a step with run and number, which is reported")
        if self._is_reported:
            raise ValueError(f"{function} comes after the step's report")

    def see_ratios(self, result: Result[Any]) -> None:
        """Enters whether a loss's ratios were all 1, by its metrics; without tokens it has none."""
        if result.metrics.get("tokens") == 0:
            return
        ends = [result.metrics.get(f"loss/ratio_{end}") for end in ("min", "max")]
        self._num_ratios += 1
        self._num_ratios_of_one += ends == [1.0, 1.0]

    def _has_only_ratios_of_one(self) -> bool:
        # A rank without tokens leaves the question to the others; one without ratios denies it.
        has_seen = self._num_ratios > 0 or self._tokens == 0
        return has_seen and self._num_ratios == self._num_ratios_of_one

    def report(self, client: Client, *, is_own_loss: bool = False) -> StepReport | None:
        """Reports the step once; a failure is logged, for training goes on without it.

        Args:
            client: Of the step.
            is_own_loss: All its losses are answers of Counterweight, which use what was issued.
        """
        if self._is_reported:
            return None
        self._is_reported = True
        issued = self._issued_last or self._issued
        used = issued if self._applied is None and is_own_loss else self._applied
        try:
            report = client.report_step(
                **self._labels,
                tokens=self._tokens,
                issued=issued,
                applied=used,
                skipped_batches=self._skipped,
                ratio_all_one=self._has_only_ratios_of_one(),
                num_reports=self._ranks,
                timeout=REPORT_SECONDS,
            )
        except CounterweightError as error:
            _log.warning("step %s was not reported: %s", self._labels["step"], error)
            return None
        for warning in report.warnings:
            _log.warning("step %s: %s", self._labels["step"], warning)
        return report
