"""Random batches, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

ROWS, WIDTH = 6, 19


@dataclass(frozen=True)
class Batch:
    """One batch, [ROWS, WIDTH] each: log-probs in nats, advantages, and a mask of 0 and 1."""

    old: torch.Tensor
    rollout: torch.Tensor
    current: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor


def make(
    seed: int,
    *,
    log_probs: torch.dtype = torch.float32,
    mask: torch.dtype = torch.float32,
    kept: str = "rows",
) -> Batch:
    """A batch of a seed.

    Args:
        seed: Equal seeds make equal batches; dtypes round the same numbers.
        log_probs: dtype of the three log-probs; advantages are float32.
        mask: dtype of the mask.
        kept: "rows": every row has tokens, with holes; "empty_row": one has none; "none": no row
            has any.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> torch.Tensor:
        return torch.randn(ROWS, WIDTH, generator=generator) * scale

    old = -0.05 - 3 * torch.rand(ROWS, WIDTH, generator=generator)
    # Rows drift by different amounts, so that every bound has rows on both of its sides.
    drift = torch.linspace(0.02, 0.6, ROWS).unsqueeze(1)
    lengths = torch.randint(WIDTH // 2, WIDTH + 1, (ROWS, 1), generator=generator)
    keep = torch.arange(WIDTH).unsqueeze(0) < lengths
    keep &= torch.rand(ROWS, WIDTH, generator=generator) < 0.9
    if kept == "empty_row":
        keep[2] = False
    elif kept == "none":
        keep[:] = False
    else:
        assert kept == "rows"
    return Batch(
        old=old.to(log_probs),
        rollout=(old + normal(1.0) * drift).clamp(max=-0.01).to(log_probs),
        current=(old + normal(0.2)).clamp(max=-0.01).to(log_probs),
        advantages=normal(1.0),
        mask=keep.to(mask),
    )


def per_row(advantages: torch.Tensor) -> torch.Tensor:
    """[ROWS, 1]: one advantage of each row."""
    return advantages[:, :1]
