"""Receipts that travel with TRL's rows, which it shuffles and splits before the loss."""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat._step_books import AWAY, Books, receipt_of
from counterweight_rl.receipt import MODULUS, Receipt
from counterweight_rl.result import Result
from counterweight_rl.transport.identity import BACKEND as IDENTITY

RATIO = "importance_sampling_ratio"
_COUNTS = "counterweight_receipts"
_EXCESS = "counterweight_weight_excess"


def mask_of(inputs: Any) -> torch.Tensor:
    """Returns the mask of TRL's losses, [B, T]."""
    mask: torch.Tensor = inputs["completion_mask"]
    return mask * inputs["tool_mask"] if "tool_mask" in inputs else mask


def of_rows(result: Result[torch.Tensor], mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns tensors of [B, ...] for TRL's inputs; none if the method has no weights."""
    if result.weights is None:
        return {}
    assert result.keep_mask is not None  # a default output
    tensors = (result.weights, result.keep_mask, mask)
    rows = [
        receipt_of(weights, kept, None, tokens)
        for weights, kept, tokens in zip(*(t.cpu().split(1) for t in tensors), strict=True)
    ]
    is_away = result.backend == IDENTITY
    counts = [
        [_signed(row.fingerprint), row.tokens, row.changed_tokens, row.dropped_tokens, is_away]
        for row in rows
    ]
    excess = [row.weight_excess for row in rows]
    return {
        _COUNTS: torch.tensor(counts, dtype=torch.int64).reshape(-1, 5),
        _EXCESS: torch.tensor(excess, dtype=torch.float64),
    }


def enter(books: Books, inputs: Any) -> None:
    """Enters a micro-batch: the receipts of its rows, and what TRL multiplies its loss by."""
    mask = mask_of(inputs)
    if _COUNTS not in inputs:
        books.enter_uncorrected(mask, None)
        return
    counts = inputs[_COUNTS].tolist()
    if any(row[-1] for row in counts):
        books.enter_uncorrected(mask, AWAY)
        return
    issued = sum(
        (
            Receipt(mark % MODULUS, tokens, changed, dropped, excess)
            for (mark, tokens, changed, dropped, _), excess in zip(
                counts, inputs[_EXCESS].tolist(), strict=True
            )
        ),
        Receipt(),
    )
    books.enter(issued, receipt_of(inputs[RATIO].expand_as(mask), mask, None))


def _signed(word: int) -> int:
    return word - MODULUS if word >= MODULUS // 2 else word
