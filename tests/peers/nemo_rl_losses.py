"""Settings, micro-batches and comparisons of NeMo-RL's loss, called as its trainers call it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS, in_float64
from nemo_rl.algorithms.loss import loss_functions as original
from nemo_rl.distributed.batched_data_dict import BatchedDataDict

ROWS, LENGTH = 6, 11
DRAWS = ("plain", "other", "negative", "per_token", "empty_row", "on_policy")
# The counts of all ranks.
SEQUENCES, TOKENS = torch.tensor(9), torch.tensor(70)
NO_PENALTY = {"reference_policy_kl_penalty": 0.0}
CORRECTED = {"use_importance_sampling_correction": True, **NO_PENALTY}


def truncated(kind: str, upper: float, lower: float | None) -> dict[str, Any]:
    return {
        **CORRECTED,
        "truncated_importance_sampling_type": kind,
        "truncated_importance_sampling_ratio": upper,
        "truncated_importance_sampling_ratio_min": lower,
    }


SEQUENCE = {"token_level_loss": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "defaults, with a KL penalty": {},
    "no correction": NO_PENALTY,
    "correction": CORRECTED,
    "tis": truncated("tis", 1.3, None),
    "tis, both ends": truncated("tis", 1.3, 0.8),
    "icepop": truncated("icepop", 1.3, 0.8),
    "seq-mask-tis": truncated("seq-mask-tis", 1.1, 0.93),
    "icepop, sequence-level loss": {**truncated("icepop", 1.3, 0.8), **SEQUENCE},
    "gspo": {**CORRECTED, **SEQUENCE, "sequence_level_importance_ratios": True},
    "gspo, tis": {
        **truncated("tis", 1.3, None),
        **SEQUENCE,
        "sequence_level_importance_ratios": True,
    },
    "dual clip": {**CORRECTED, "ratio_clip_c": 1.05},
    "gspo, dual clip": {
        **{**CORRECTED, **SEQUENCE, "ratio_clip_c": 1.05},
        "sequence_level_importance_ratios": True,
    },
    "reinforce": {**CORRECTED, "disable_ppo_ratio": True},
    "reinforce, dual clip": {**CORRECTED, "disable_ppo_ratio": True, "ratio_clip_c": 1.05},
    "cispo": {**CORRECTED, "use_cispo": True, "ratio_clip_max": 0.05},
    "on policy": {**truncated("tis", 1.3, None), "force_on_policy_ratio": True},
    "positive examples, on-policy KL": {
        "positive_example_nll_weight": 0.1,
        "use_on_policy_kl_approximation": True,
        "use_importance_sampling_correction": True,
    },
}


def batch(draw: str = "plain") -> tuple[torch.Tensor, BatchedDataDict[Any]]:
    """Returns log-probs of the current policy and a micro-batch.

    Args:
        draw: "other": other numbers; "negative": so are all advantages; "per_token": an advantage
            of each token; "empty_row": of a sample that counts; "on_policy": the old policy is the
            current one.
    """
    assert draw in DRAWS
    generator = torch.Generator().manual_seed(5 if draw == "other" else 23)

    def noise(deviation: float) -> torch.Tensor:
        return deviation * torch.randn(ROWS, LENGTH, generator=generator)

    prev = -0.1 - 2 * torch.rand(ROWS, LENGTH, generator=generator)
    mask = torch.rand(ROWS, LENGTH, generator=generator) < 0.8
    sample_mask = torch.ones(ROWS)
    sample_mask[-1] = 0
    fields = {
        "input_ids": torch.zeros(ROWS, LENGTH, dtype=torch.long),
        "input_lengths": torch.full((ROWS,), LENGTH),
        "advantages": torch.randn(ROWS, 1, generator=generator).expand(ROWS, LENGTH).clone(),
        "prev_logprobs": prev,
        "generation_logprobs": prev + noise(0.3),
        "reference_policy_logprobs": prev + noise(0.2),
        "token_mask": mask.float(),
        "sample_mask": sample_mask,
        "rewards": torch.tensor([1.0, 0, 1, 0, 0, 1]),
    }
    current = (prev + noise(0.15))[:, 1:].clone()
    if draw == "negative":
        fields["advantages"] = -fields["advantages"].abs()
    elif draw == "per_token":
        fields["advantages"] = noise(1.0)
    elif draw == "empty_row":
        fields["token_mask"][2] = 0
    elif draw == "on_policy":
        current = prev[:, 1:].clone()
    return current.requires_grad_(), BatchedDataDict(fields)


def answer(
    loss_fn: Any, draw: str = "plain", *, has_counts: bool = True, exact: bool = False
) -> tuple[float, torch.Tensor, dict[str, Any]]:
    """Returns the loss, its gradient and the metrics; ``exact``: of the numbers in float64."""
    current, data = batch(draw)
    if exact:
        current = current.detach().double().requires_grad_()
        data = BatchedDataDict({name: in_float64(one) for name, one in data.items()})
    loss, metrics = loss_fn(
        next_token_logprobs=current,
        data=data,
        global_valid_seqs=SEQUENCES if has_counts else None,
        global_valid_toks=TOKENS if has_counts else None,
    )
    loss.backward()
    assert current.grad is not None
    return loss.item(), current.grad, metrics


def same(actual: Any, expected: Any) -> None:
    largest = expected[1].abs().max().item()
    assert largest > 0
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=1e-6)
    torch.testing.assert_close(
        actual[1], expected[1], rtol=1e-4, atol=GRADIENT_ATOL_OF_LARGEST * largest
    )


def clipped_pg(**changes: Any) -> original.ClippedPGLossFn:
    return original.ClippedPGLossFn(original.ClippedPGLossConfig(**changes))
