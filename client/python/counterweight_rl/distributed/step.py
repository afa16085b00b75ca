"""One optimizer step, cut into micro-batches and ranks."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from counterweight_rl import calls
from counterweight_rl.applied_receipt import applied
from counterweight_rl.config import Dialect, GlobalCounts, Method
from counterweight_rl.distributed.fingerprint import fingerprint
from counterweight_rl.distributed.rank_groups import of_ranks
from counterweight_rl.distributed.reduction import MOST_VECTORS, Group, add
from counterweight_rl.distributed.step_books import StepBooks
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.result import Result
from counterweight_rl.step_totals import StepTotals

if TYPE_CHECKING:
    from counterweight_rl.arrays.interop import ArrayT
    from counterweight_rl.client import Client
    from counterweight_rl.group_baseline import Baseline, GroupAdvantages
    from counterweight_rl.step_report import StepReport

_OF_STEP = frozenset(
    {
        "method",
        "global_counts",
        "partial_sums",
        "omit_loss",
        "metrics",
        "run",
        "policy_version",
        "step",
    }
)
_OF_LOSS = frozenset({"group_ids", "row_divisors"})
_ARGUMENTS = calls.ARGUMENTS.keys() - _OF_STEP
# The number of a vector of sums that counts its batches.
_PARTS = 1


class Step:
    """A step whose weights, losses, gradients and metrics do not depend on how it is cut.

        step = Step(client, method, group=group)
        for micro in micro_batches:
            step.add(**micro)
        totals = step.reduce()
        for micro in micro_batches:
            result = step.finish(**micro)
            result.loss, result.gradient
        totals = step.close()

    With ``run`` and ``number`` the step keeps books: what its answers issued, and what the losses
    applied (``applied``, or those of ``finish``). It reports both when it is closed or left as a
    context manager, also by an exception; ``report`` and a warning in the log say if the weights
    were not used. The last rank to report a step knows.

    Whatever couples the rows of a step is computed from all of them: normalizers of weights, counts
    that losses divide by, sample sizes, deviations, extrema. ``add`` and ``finish`` involve no
    other rank, so that ranks may have any number of micro-batches, and pipelines any order;
    ``reduce`` and ``close`` are called once by every rank, also by one without micro-batches. For
    one thread.
    """

    def __init__(
        self,
        client: Client,
        method: Method,
        *,
        group: Any = None,
        average: bool = False,
        selection_scope: str | None = None,
        loss_metrics: bool = False,
        run: str | None = None,
        policy_version: int | None = None,
        number: int | None = None,
    ) -> None:
        """Sends nothing.

        Args:
            client: Computes the micro-batches; "local:" costs least.
            method: The method of all ranks, with its loss.
            group: Ranks with different rows: a process group of torch.distributed, an MPI
                communicator (with ``Allreduce``), or None: this process alone. Ranks that send the
                same rows (tensor or context parallel) must not be in it together.
            average: True if the trainer's all-reduce averages gradients over ``group``, as
                DistributedDataParallel and FSDP do: losses and gradients of ``finish`` are
                multiplied by its size.
            selection_scope: "call" for KL_COV and CLIP_COV, which then select among the tokens of
                each micro-batch.
            loss_metrics: True: ``close`` also has the loss's own metrics, such as
                "loss/clip_fraction"; ``finish`` takes longer then, and a server that computes the
                micro-batches counts their tokens twice.
            run: Label of the step in Prometheus and on the page, as in ``Client.correct``.
            policy_version: As ``run``.
            number: The optimizer step's number, ``step`` of ``Client.correct``. A server adds the
                micro-batches of one number; of clients with ``publish`` the first rank sends the
                step's sums, once.

        Raises:
            TypeError: ``group`` is none.
            ValueError: The client publishes, and there is no ``number``.
        """
        if number is None and client.publishes:
            raise ValueError(
                "number is required: a client with publish= sends a step's sums by its number"
            )
        self._client = client
        self._method = method
        self._group = Group(group)
        self._average = average
        self._selection_scope = selection_scope
        self._loss_metrics = loss_metrics
        labels: dict[str, Any] = {"run": run, "policy_version": policy_version, "step": number}
        self._labels = {name: value for name, value in labels.items() if value is not None}
        self._books = StepBooks(self._labels, self._group.size)
        self._sums: PartialSums | None = None
        self._loss_sums: PartialSums | None = None
        self._added: collections.Counter[tuple[Any, ...]] = collections.Counter()
        self._totals: StepTotals | None = None
        self._counts: GlobalCounts | None = None
        self._closed = False
        self.report: StepReport | None = None

    @calls.takes(_ARGUMENTS)
    def add(self, *, outputs: Iterable[str] | None = None, **micro: Any) -> Result[Any]:
        """Adds a micro-batch, without its loss; a first pass over the step's rows.

        Args:
            outputs: Arrays of the Result; None: the keep mask, and the weights if the method has
                them. Weights that the method normalizes are divided by the micro-batch's own mean;
                ``finish`` has the step's.
            micro: The arguments of ``Client.correct``, but what the step knows.

        Raises:
            TypeError: An argument is the step's, such as ``method``.
            ValueError: The step was reduced before, or the micro-batch has other tensors than those
                before.
            CounterweightError: The errors of ``Client.correct``.
        """
        if self._totals is not None:
            raise ValueError("the step was reduced; add micro-batches before reduce()")
        _check("add", micro)
        of_drift = {name: value for name, value in micro.items() if name not in _OF_LOSS}
        result: Result[Any] = self._client.correct(
            method=self._method,
            outputs=outputs,
            partial_sums=True,
            omit_loss=True,
            **self._labels,
            **of_drift,
        )
        self._sums = self._add(result, self._sums)
        self._added[fingerprint(micro)] += 1
        self._books.issue(result, micro)
        return result

    def applied(
        self, weights: Any, mask: Any, *, sequence_lengths: Iterable[int] | None = None
    ) -> None:
        """Enters the weights and the mask that a loss is multiplied by, where it reads them.

        Args:
            weights: See ``counterweight_rl.applied``.
            mask: As ``weights``.
            sequence_lengths: As ``weights``.

        Raises:
            TypeError: An argument is no numpy array or torch tensor.
            ValueError: The shapes differ, the step has no run and number, or it was reported.
        """
        self._books.apply(applied(weights, mask, sequence_lengths=sequence_lengths))

    def skipped(self, reason: str, *, batches: int = 1, tokens: int = 0) -> None:
        """Enters batches that are trained without a correction.

        Args:
            reason: Matches [A-Za-z0-9_.-]{1,64}, such as "no_rollout_log_probs".
            batches: How many.
            tokens: Their tokens with response_mask 1.

        Raises:
            TypeError: An argument is of a wrong type.
            ValueError: One is out of its range, this is a ninth reason, the step has no run and
                number, or it was reported.
        """
        self._books.skip(reason, batches, tokens)

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Reports the step, unless ``close`` did."""
        self.report = self._books.report(self._client) or self.report

    def reduce(self) -> StepTotals:
        """Adds the ranks' sums; the only collective before ``close``.

        Returns:
            The step's metrics without those of the loss, the same on every rank, and ``counts``,
            which compat functions and ``Client.correct`` take as ``global_counts``.

        Raises:
            ValueError: It was reduced before, or no rank has a micro-batch.
            CounterweightError: A rank did not come within the group's timeout, or has another
                method; or the errors of ``Client.metrics_of``.
        """
        if self._totals is not None:
            raise ValueError("the step was reduced before")
        sums = self._group.reduce(self._sums)
        if sums is None:
            raise ValueError("no rank has added a micro-batch")
        self._totals = totals = self._finished(sums, publish=not self._loss_metrics)
        self._counts = self.counts
        return totals

    def group_advantages(
        self,
        rewards: ArrayT,
        group_ids: Iterable[int] | ArrayT,
        baseline: Baseline,
        *,
        tokens: Iterable[int] | ArrayT | None = None,
        kept_tokens: Iterable[int] | ArrayT | None = None,
    ) -> GroupAdvantages[ArrayT]:
        """Makes advantages of groups whose rows are on any micro-batches and ranks.

        A collective, which every rank calls, also one without rows. Bits do not depend on how the
        rows are cut.

        Args:
            rewards: [B] of this rank, as in ``Client.group_advantages``, like the others.
            group_ids: Integers, the same on all ranks.
            baseline: The same on all ranks.
            tokens: [B] or a mask [B, T]; given by all ranks or none.
            kept_tokens: As ``tokens``.

        Raises:
            TypeError: An argument is of a wrong type.
            ValueError: ``rewards`` is not [B], infinite, or of another length than the others.
            CounterweightError: A rank did not come, or the errors of ``Client.group_advantages``.
        """
        return of_ranks(
            self._client, self._group, rewards, group_ids, baseline, tokens, kept_tokens
        )

    @property
    def counts(self) -> GlobalCounts | None:
        """The step's counts that the method reads; None: it reads none.

        Raises:
            ValueError: The step was not reduced yet.
        """
        counts = self._reduced("counts").counts
        ranks = self._group.size if self._average else None
        if counts is None:
            # A sum of tokens divides by nothing, and is averaged all the same.
            return None if ranks is None else GlobalCounts(num_ranks=ranks)
        return dataclasses.replace(counts, num_ranks=ranks, selection_scope=self._selection_scope)

    @calls.takes(_ARGUMENTS)
    def finish(self, **micro: Any) -> Result[Any]:
        """Computes a micro-batch by the step's sums; no collective.

        The ranks' losses and gradients add up to the whole step's.

        Args:
            micro: The arguments of ``Client.correct`` for rows that ``add`` saw, with what their
                loss needs.

        Raises:
            TypeError: An argument is the step's, such as ``method``.
            ValueError: The step was not reduced yet, ``add`` did not see these rows, they were
                finished before, or the method's loss cannot divide by a step's counts.
            CounterweightError: The errors of ``Client.correct``.
        """
        totals = self._reduced("finish()")
        if totals.counts_refusal:
            raise ValueError(f"this method's loss is none of a step: {totals.counts_refusal}")
        _check("finish", micro)
        rows = fingerprint(micro)
        if self._added[rows] == 0:
            raise ValueError("these rows were not added to the step, or were finished before")
        result: Result[Any] = self._client.correct(
            method=self._method,
            global_counts=self._counts_for(micro),
            partial_sums=True,
            metrics=self._loss_metrics,
            **self._labels,
            **micro,
        )
        self._loss_sums = self._add(result, self._loss_sums)
        self._added[rows] -= 1
        self._books.issue_again(result, micro)
        if self._loss_metrics:
            self._books.see_ratios(result)
        return result

    def close(self) -> StepTotals:
        """Adds the losses of ``finish`` over the ranks; the second collective.

        Returns:
            The step's metrics and its loss, the same on every rank: where ``average`` is True, the
            loss that the ranks' average is.

        Raises:
            ValueError: The step was not reduced yet, or closed before; or some rank has finished
                less micro-batches than it added, on every rank. None finished is no loss.
            CounterweightError: As ``reduce``.
        """
        totals = self._reduced("close()")
        if self._closed:
            raise ValueError("the step was closed before")
        self._closed = True
        try:
            closed = self._close(totals)
        except BaseException:
            self.report = self._books.report(self._client)
            raise
        self.report = self._books.report(self._client, is_own_loss=closed.loss is not None)
        return closed

    def _close(self, totals: StepTotals) -> StepTotals:
        sums = self._group.reduce(self._loss_sums)
        if sums is None:
            return totals
        finished, added = int(sums.sums[_PARTS]), int(totals.sums.sums[_PARTS])
        if finished != added:
            raise ValueError(
                f"{finished} of the step's {added} micro-batches were finished: their losses are "
                "not the step's"
            )
        losses = self._finished(sums, publish=self._loss_metrics)
        if losses.loss is None:
            return totals
        loss = losses.loss / self._group.size if self._average else losses.loss
        return dataclasses.replace(totals, loss=loss, metrics={**totals.metrics, **losses.metrics})

    def _finished(self, sums: PartialSums, *, publish: bool) -> StepTotals:
        publish = publish and self._client.publishes and self._group.rank == 0
        labels = self._labels if publish and "step" in self._labels else {}
        return self._client.metrics_of(sums, self._method, **labels)

    def _counts_for(self, micro: dict[str, Any]) -> GlobalCounts | None:
        counts = self._counts
        asked = micro.get("outputs") or ()
        has_inputs = all(micro.get(n) is not None for n in ("current_log_probs", "advantages"))
        # Another system's block computes its loss on demand; only weights may need the step then.
        if (
            counts is None
            or has_inputs
            or not isinstance(self._method, Dialect)
            or {"loss", "gradient"} & {*asked}
        ):
            return counts
        mean = counts.weight_mean
        return None if mean is None else GlobalCounts(weight_mean=mean)

    def _reduced(self, what: str) -> StepTotals:
        if self._totals is None:
            raise ValueError(f"{what} needs the step's sums: call reduce() before")
        return self._totals

    def _add(self, result: Result[Any], sums: PartialSums | None) -> PartialSums:
        assert result.sums is not None
        sums = add(result.sums, sums)
        # The first number counts the vectors.
        if sums.sums[0] >= MOST_VECTORS // 2:
            sums = self._client.merge(sums)
        return sums


def _check(function: str, micro: dict[str, Any]) -> None:
    if micro.keys() <= _ARGUMENTS and "response_mask" in micro:
        return
    for name in micro:
        if name in _OF_STEP:
            raise TypeError(f"{name} is an argument of the step, not of {function}()")
    calls.check_names(function, micro, _ARGUMENTS)
