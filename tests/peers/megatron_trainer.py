"""A micro-batch, and comparisons, for the hooks in slime's and miles' own ``loss_function``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS
from counterweight_rl import compat

WORDS = 11
# Samples: prompt and response lengths; the last has no token that counts.
LENGTHS = [(2, 7), (1, 5), (3, 9), (2, 4)]
# Micro-batches with shapes that may matter; "plain" has holes in its masks and both signs of
# advantages.
DRAWS = ("plain", "per_token", "whole", "one_sample", "one_token", "shared", "shared_beyond")
# "negative": every sample is one to avoid.
ALL_DRAWS = (*DRAWS, "negative")
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
    **{"kl_loss_coef": 0.3, "kl_loss_type": "k3", "use_unbiased_kl": False, "opsm_delta": 0.0},
    **{"eps_clip_c": None, "custom_pg_loss_reducer_function_path": None, "draw": "plain"},
}


def arguments(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**_FIELDS, **changes})


def log_softmax(logits: torch.Tensor, tokens: torch.Tensor, *_: Any, **options: Any) -> Any:
    log_probs = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1) if options["with_entropy"] else None
    return log_probs.gather(1, tokens.unsqueeze(1)), entropy


def batch(draw: str = "plain") -> tuple[torch.Tensor, dict[str, Any]]:
    """Returns logits and a micro-batch.

    Args:
        draw: "per_token": an advantage for each token; "whole": no mask has a hole and no sample is
            empty; "one_sample"; "one_token": of each sample; "shared": the first two samples share
            a divisor; "shared_beyond": it counts tokens of other micro-batches too.
    """
    assert draw in ALL_DRAWS
    generator = torch.Generator().manual_seed(41)
    lengths = LENGTHS[:1] if draw == "one_sample" else LENGTHS
    if draw == "one_token":
        lengths = [(prompt, 1) for prompt, _ in lengths]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    tokens = [torch.randint(WORDS, (p + r,), generator=generator) for p, r in lengths]
    logits = normal(1, sum(map(len, tokens)), WORDS)
    ends = torch.tensor([len(one) for one in tokens]).cumsum(0).tolist()
    logs = torch.log_softmax(logits[0], dim=-1)
    found: dict[str, list[torch.Tensor]] = {
        name: [] for name in ("log_probs", "rollout_log_probs", "advantages", "loss_masks")
    }
    for row, ((_, size), end, words) in enumerate(zip(lengths, ends, tokens, strict=True)):
        current = logs[end - size - 1 : end - 1].gather(1, words[-size:].unsqueeze(1)).squeeze(1)
        old = current + 0.15 * normal(size)
        mask = torch.rand(size, generator=generator) < 0.8
        if draw in ("whole", "one_token"):
            mask[:] = True
        elif row == len(LENGTHS) - 1:
            mask[:] = False
        found["log_probs"].append(old)
        found["rollout_log_probs"].append(old + 0.3 * normal(size))
        # The first and every other sample is one to avoid.
        sign = -1 if draw == "negative" else (-1) ** (row + 1)
        advantage = sign * (0.1 + normal(1).abs())
        one = normal(size) if draw == "per_token" else advantage.expand(size).clone()
        found["advantages"].append(one)
        found["loss_masks"].append(mask.int())
    reference = torch.Generator().manual_seed(43)
    found["ref_log_probs"] = [
        one + 0.2 * torch.randn(one.shape, generator=reference) for one in found["log_probs"]
    ]
    sums = torch.stack([mask.sum() for mask in found["loss_masks"]]).float()
    if draw.startswith("shared"):
        sums[:2] = sums[:2].sum() + (5 if draw == "shared_beyond" else 0)
    rest = {
        "unconcat_tokens": tokens,
        "total_lengths": [p + r for p, r in lengths],
        "response_lengths": [r for _, r in lengths],
        "rollout_mask_sums": sums,
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
    kept = (
        compat.client()
        .correct(
            rollout_log_probs=torch.cat(data["rollout_log_probs"]),
            old_log_probs=torch.cat(data["log_probs"]),
            response_mask=torch.cat(data["loss_masks"]),
            sequence_lengths=data["response_lengths"],
            method=method,
        )
        .keep_mask
    )
    rows = list(torch.split(kept, data["response_lengths"]))
    assert [bool(row.any()) for row in rows].count(True) in (1, 2)  # of three
    return rows
