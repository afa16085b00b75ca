"""The books of the losses of one process, between two optimizer steps."""

from __future__ import annotations

import collections
from typing import Any

from counterweight_rl.applied_receipt import applied, count_tokens
from counterweight_rl.arrays.nested import flatten, is_nested
from counterweight_rl.receipt import Receipt, add
from counterweight_rl.result import Result
from counterweight_rl.transport.identity import BACKEND as IDENTITY

AWAY = "server_away"
"""Reason of a batch that ``on_unavailable="identity"`` has answered."""


class Books:
    """Sums over the micro-batches of a step. For one thread."""

    def __init__(self) -> None:
        self.issued: Receipt | None = None
        self.applied: Receipt | None = None
        self.tokens = 0
        self.skipped: collections.Counter[str] = collections.Counter()
        self.num_batches = 0

    @property
    def corrects(self) -> bool:
        """Whether a batch had weights, or was to have them."""
        return self.issued is not None or bool(self.skipped)

    def enter(self, issued: Receipt, used: Receipt) -> None:
        """Enters a batch with weights."""
        self.tokens += issued.tokens + issued.dropped_tokens
        self.issued = add(self.issued, issued)
        self.applied = add(self.applied, used)
        self.num_batches += 1

    def enter_uncorrected(self, response_mask: Any, reason: str | None) -> None:
        """Enters a batch without weights.

        Args:
            response_mask: [B, T] or [N], each 0 or 1; None: not known.
            reason: Why there are none although the method has some; None: it has none.
        """
        if response_mask is not None:
            if is_nested(response_mask):
                response_mask, _ = flatten("response_mask", response_mask)
            self.tokens += count_tokens(response_mask)
        if reason is not None:
            self.skipped[reason] += 1
        self.num_batches += 1

    def enter_answer(
        self,
        result: Result[Any],
        response_mask: Any,
        lengths: list[int] | None,
        weights: Any = None,
        mask: Any = None,
    ) -> None:
        """Enters a batch by the answer to it.

        Args:
            result: The answer, with the weights if its method has some.
            response_mask: As it was sent.
            lengths: Of packed sequences.
            weights: What the loss was multiplied by; None: the answer's.
            mask: The mask that the loss has; None: the answer's.
        """
        if result.weights is None or result.backend == IDENTITY:
            reason = AWAY if result.backend == IDENTITY else None
            self.enter_uncorrected(response_mask, reason)
            return
        kept = response_mask if result.keep_mask is None else result.keep_mask
        issued = receipt_of(result.weights, kept, lengths, response_mask)
        weights = result.weights if weights is None else weights
        mask = kept if mask is None else mask
        is_same = weights is result.weights and mask is kept
        self.enter(issued, issued if is_same else receipt_of(weights, mask, lengths))


def receipt_of(
    weights: Any, mask: Any, lengths: list[int] | None, response_mask: Any = None
) -> Receipt:
    """Returns ``counterweight_rl.applied`` of padded, packed or nested tensors."""
    named = {"weights": weights, "mask": mask, "response_mask": response_mask}
    for name, tensor in named.items():
        if is_nested(tensor):
            named[name], lengths = flatten(name, tensor)
    return applied(
        named["weights"],
        named["mask"],
        response_mask=named["response_mask"],
        sequence_lengths=lengths,
    )
