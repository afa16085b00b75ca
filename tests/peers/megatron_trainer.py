"""A micro-batch, and comparisons, for the hooks in slime's and miles' own ``loss_function``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS

WORDS = 11
# Samples: prompt and response lengths; the last has no token that counts.
LENGTHS = [(2, 7), (1, 5), (3, 9), (2, 4)]
# A loss, its gradient by the logits, and what the trainer logs.
Answer = tuple[float, torch.Tensor, dict[str, float]]
ICEPOP = '{"preset": "icepop", "lower": 0.8, "upper": 1.3}'

# Arguments that slime and miles, its fork, share.
_FIELDS = {
    **{"loss_type": "policy_loss", "use_tis": True, "custom_tis_function_path": None},
    **{"tis_clip": 1.3, "tis_clip_low": 0.8, "eps_clip": 0.1, "eps_clip_high": 0.15},
    **{"advantage_estimator": "grpo", "use_rollout_logprobs": False, "use_opsm": False},
    **{"get_mismatch_metrics": False, "calculate_per_token_loss": False},
    **{"entropy_coef": 0.01, "use_kl_loss": False, "rollout_temperature": 1.0},
    **{"log_probs_chunk_size": -1, "allgather_cp": False, "recompute_loss_function": False},
}


def arguments(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**_FIELDS, **changes})


def log_softmax(logits: torch.Tensor, tokens: torch.Tensor, *_: Any, **options: Any) -> Any:
    log_probs = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1) if options["with_entropy"] else None
    return log_probs.gather(1, tokens.unsqueeze(1)), entropy


def batch() -> tuple[torch.Tensor, dict[str, Any]]:
    """Returns logits and a micro-batch."""
    generator = torch.Generator().manual_seed(41)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    tokens = [torch.randint(WORDS, (p + r,), generator=generator) for p, r in LENGTHS]
    logits = normal(1, sum(map(len, tokens)), WORDS)
    ends = torch.tensor([len(one) for one in tokens]).cumsum(0).tolist()
    logs = torch.log_softmax(logits[0], dim=-1)
    found: dict[str, list[torch.Tensor]] = {
        name: [] for name in ("log_probs", "rollout_log_probs", "advantages", "loss_masks")
    }
    for row, ((_, size), end, words) in enumerate(zip(LENGTHS, ends, tokens, strict=True)):
        current = logs[end - size - 1 : end - 1].gather(1, words[-size:].unsqueeze(1)).squeeze(1)
        old = current + 0.15 * normal(size)
        mask = torch.rand(size, generator=generator) < 0.8
        found["log_probs"].append(old)
        found["rollout_log_probs"].append(old + 0.3 * normal(size))
        found["advantages"].append(normal(1).expand(size).clone())
        found["loss_masks"].append((mask & (row != len(LENGTHS) - 1)).int())
    rest = {
        "unconcat_tokens": tokens,
        "total_lengths": [p + r for p, r in LENGTHS],
        "response_lengths": [r for _, r in LENGTHS],
        "rollout_mask_sums": [mask.sum() for mask in found["loss_masks"]],  # slime alone reads them
    }
    return logits.requires_grad_(), {**found, **rest}


def same(actual: tuple[Any, ...], called: tuple[Any, ...]) -> None:
    """Equal but for rounding: the trainers compute in float32 only."""
    assert math.isclose(actual[0], called[0], rel_tol=LOSS["rtol"], abs_tol=1e-6)
    largest = called[1].abs().max().item()
    assert largest > 0
    torch.testing.assert_close(
        actual[1], called[1], rtol=1e-4, atol=GRADIENT_ATOL_OF_LARGEST * largest
    )


def check_truncation(
    answer: Callable[[argparse.Namespace], Answer], args: argparse.Namespace, path: str
) -> None:
    """The hook's function of ``path``, without a method, is the trainer's own truncation."""
    called = answer(args)
    args.custom_tis_function_path = path
    actual = answer(args)
    same(actual, called)
    for name in ("loss", "pg_loss", "pg_clipfrac", "entropy_loss", "ois"):
        assert actual[2][name] == pytest.approx(called[2][name], rel=1e-4, abs=1e-6), name


def kept_rows(method: Any, data: dict[str, Any]) -> list[torch.Tensor]:
    """Returns the masks that a client leaves, where the method drops some samples and not all."""
    with cw.Client("local:") as client:
        kept = client.correct(
            rollout_log_probs=torch.cat(data["rollout_log_probs"]),
            old_log_probs=torch.cat(data["log_probs"]),
            response_mask=torch.cat(data["loss_masks"]),
            sequence_lengths=data["response_lengths"],
            method=method,
        ).keep_mask
    rows = list(torch.split(kept, data["response_lengths"]))
    assert [bool(row.any()) for row in rows].count(True) in (1, 2)  # of three
    return rows
