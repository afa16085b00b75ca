"""Receipts: what an optimizer step received, and what its loss used."""

from __future__ import annotations

from dataclasses import dataclass

MODULUS = 1 << 64
"""Sums of fingerprints are taken modulo this."""
WARNINGS = {
    "unused": (
        "the loss did not use the weights and the mask of this step: its weights were all 1, or "
        "its mask was not the keep mask; multiply the loss of each token by its weight and keep "
        "mask"
    ),
    "rounded": "the loss used rounded weights; keep them in float32 up to the loss",
    "replaced": (
        "the loss used other weights or another mask than this step received: of other rows, "
        "shifted by a token, or computed elsewhere"
    ),
}
"""The sentences of states, which a server's answer has too."""


@dataclass(frozen=True)
class Receipt:
    """Sums over weights and a mask; those of parts add up to those of all their rows.

    Order of rows, padding, micro-batches and ranks change none of them, but for the rounding of
    ``weight_excess``. A token counts if its mask is 1 and its weight is not 0.

    Attributes:
        fingerprint: Of the weights' bits at counted tokens, 64 bits; the contract has its formula.
            Sums are modulo 2^64.
        tokens: Counted tokens.
        changed_tokens: Counted tokens with a weight other than 1.
        dropped_tokens: Tokens of the response mask that do not count; 0 where it is not known.
        weight_excess: Sum of w - 1 over the counted tokens.
    """

    fingerprint: int = 0
    tokens: int = 0
    changed_tokens: int = 0
    dropped_tokens: int = 0
    weight_excess: float = 0.0

    def __add__(self, other: Receipt) -> Receipt:
        return Receipt(
            (self.fingerprint + other.fingerprint) % MODULUS,
            self.tokens + other.tokens,
            self.changed_tokens + other.changed_tokens,
            self.dropped_tokens + other.dropped_tokens,
            self.weight_excess + other.weight_excess,
        )


def add(receipts: Receipt | None, receipt: Receipt) -> Receipt:
    """Returns the sum; None is that of no receipts."""
    return receipt if receipts is None else receipts + receipt


def judge(issued: Receipt | None, used: Receipt | None) -> str | None:
    """Returns "used", "unused", "rounded" or "replaced" as a server does; None without a side."""
    if issued is None or used is None:
        return None
    same_tokens = issued.tokens == used.tokens
    if same_tokens and issued.fingerprint == used.fingerprint:
        return "used"
    if used.changed_tokens == 0 and (issued.changed_tokens > 0 or used.tokens > issued.tokens):
        return "unused"
    difference = abs(used.weight_excess - issued.weight_excess)
    is_rounded = same_tokens and 1e-9 * issued.tokens < difference <= 2**-8 * issued.tokens
    return "rounded" if is_rounded else "replaced"
