"""Generated batches, the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np


def padded_batch(
    num_sequences: int = 6, length: int = 37, *, spread: float = 0.3, seed: int = 0
) -> dict[str, Any]:
    """All inputs of a padded request, with trailing padding of NaN.

    The first row is full, the last one empty; every drift source has outliers.
    """
    generator = np.random.default_rng(seed)
    shape = (num_sequences, length)
    lengths = generator.integers(1, length + 1, num_sequences)
    lengths[0], lengths[-1] = length, 0
    mask = (np.arange(length) < lengths[:, None]).astype(np.uint8)

    def log_probs(base: np.ndarray | None = None) -> np.ndarray:
        if base is None:
            values = -generator.exponential(1.0, shape)
        else:
            values = base + spread * generator.standard_normal(shape)
        return np.where(mask, values, np.nan).astype(np.float32)

    rollout = log_probs()
    old = log_probs(rollout)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "current_log_probs": log_probs(old),
        "response_mask": mask,
        "advantages": generator.standard_normal(shape).astype(np.float32),
    }


def packed(batch: dict[str, Any]) -> dict[str, Any]:
    """The same batch without its padding."""
    mask = batch["response_mask"]
    keep = mask.astype(bool)
    lengths = keep.sum(axis=1)
    assert (keep == (np.arange(mask.shape[1]) < lengths[:, None])).all()
    flat = {name: array[keep] for name, array in batch.items()}
    return {**flat, "sequence_lengths": lengths, "padded_length": mask.shape[1]}
