"""``counterweight_rl.hooks.nemo_rl`` beside NeMo-RL's own ``ClippedPGLossFn``, from a checkout.

The wrapped loss is called as NeMo-RL's trainers call it, on its own BatchedDataDict, and by its
wrapper for packed sequences. ray, hydra, and the modules of workers and loggers are stand-ins.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS
from counterweight_rl.hooks.nemo_rl import PolicyLoss
from nemo_rl.algorithms.loss import loss_functions as original
from nemo_rl.algorithms.loss.interfaces import LossFunction, LossInputType, MetricNormalizer
from nemo_rl.algorithms.loss.wrapper import SequencePackingLossWrapper
from nemo_rl.distributed.batched_data_dict import BatchedDataDict

pytestmark = pytest.mark.compares("hooks.nemo_rl.PolicyLoss")

ROWS, LENGTH = 6, 11
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


def batch() -> tuple[torch.Tensor, BatchedDataDict[Any]]:
    """Returns log-probs of the current policy and a micro-batch."""
    generator = torch.Generator().manual_seed(23)

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
    return (prev + noise(0.15))[:, 1:].clone().requires_grad_(), BatchedDataDict(fields)


def answer(loss_fn: Any) -> tuple[float, torch.Tensor, dict[str, Any]]:
    current, data = batch()
    loss, metrics = loss_fn(
        next_token_logprobs=current,
        data=data,
        global_valid_seqs=SEQUENCES,
        global_valid_toks=TOKENS,
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


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_without_a_method_it_is_nemo_rls_own(config: dict[str, Any]) -> None:
    expected = answer(clipped_pg(**config))
    actual = answer(PolicyLoss(clipped_pg(**config)))
    same(actual, expected)
    for name, value in expected[2].items():
        assert actual[2][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert set(actual[2]) - set(expected[2]) == {"counterweight_kl", "counterweight_k3"}


def test_a_method_takes_the_place_of_the_correction() -> None:
    """NeMo-RL's IcePop by another name, although its own configuration has tis."""
    expected = answer(clipped_pg(**truncated("icepop", 1.3, 0.8)))
    method = {"preset": "icepop", "lower": 0.8, "upper": 1.3}
    actual = answer(PolicyLoss(clipped_pg(**truncated("tis", 1.1, None)), method))
    same(actual, expected)
    # NeMo-RL's own estimate of the same drift, divided by the same count.
    assert actual[2]["counterweight_k3"] == pytest.approx(expected[2]["gen_kl_error"], rel=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        {"ratio_clip_c": 1.05},
        {**SEQUENCE, "ratio_clip_max": 0.05},
        {"use_cispo": True, "ratio_clip_max": 0.05},
        {"disable_ppo_ratio": True},
        {"force_on_policy_ratio": True},
    ],
    ids=str,
)
def test_a_method_weighs_every_surrogate_of_nemo_rl(config: dict[str, Any]) -> None:
    expected = answer(clipped_pg(**truncated("icepop", 1.3, 0.8), **config))
    method = {"preset": "icepop", "lower": 0.8, "upper": 1.3}
    actual = answer(PolicyLoss(clipped_pg(**NO_PENALTY, **config), method))
    same(actual, expected)
    assert actual[2]["loss"] == pytest.approx(expected[2]["loss"], rel=1e-4)


def test_a_method_with_a_loss_of_its_own() -> None:
    method = {"preset": "token_tis", "policy_loss": {"surrogate": "reinforce"}}
    expected = answer(clipped_pg(**truncated("tis", 2.0, None), disable_ppo_ratio=True))
    same(answer(PolicyLoss(clipped_pg(**CORRECTED), method)), expected)


def test_micro_batches_add_up_to_the_batch() -> None:
    loss_fn = PolicyLoss(clipped_pg(**truncated("tis", 1.3, None)))
    whole = answer(loss_fn)
    current, data = batch()
    total = 0.0
    for first in range(0, ROWS, 2):
        loss, _ = loss_fn(
            next_token_logprobs=current[first : first + 2],
            data=data.slice(first, first + 2),
            global_valid_seqs=SEQUENCES,
            global_valid_toks=TOKENS,
        )
        loss.backward()
        total += loss.item()
    same((total, current.grad), whole)


def test_packed_sequences() -> None:
    """NeMo-RL's wrapper calls the loss for one sequence after another, with a dict of its own."""
    loss_fn = PolicyLoss(clipped_pg(**truncated("tis", 1.3, None)))
    whole = answer(loss_fn)
    current, data = batch()

    def prepare(logits: torch.Tensor, data: Any, **_: Any) -> Any:
        return {"next_token_logprobs": logits[:, : LENGTH - 1]}, data

    ends = torch.arange(ROWS + 1) * LENGTH
    wrapper = SequencePackingLossWrapper(loss_fn, prepare, ends, ends)
    packed = torch.cat([current, torch.zeros(ROWS, 1)], dim=1).reshape(1, -1)
    loss, metrics = wrapper(packed, data, SEQUENCES, TOKENS)
    loss.backward()
    same((loss.item(), current.grad), whole)
    assert metrics["counterweight_k3"] == pytest.approx(whole[2]["counterweight_k3"], rel=1e-4)


def test_it_is_a_loss_function_that_travels() -> None:
    loss_fn = pickle.loads(pickle.dumps(PolicyLoss(clipped_pg(**CORRECTED), "token_tis")))
    members = [name for name in LossFunction.__annotations__ if not name.startswith("_")]
    assert members == ["loss_type", "input_type"]
    assert loss_fn.input_type is LossInputType.LOGPROB
    assert loss_fn.metric_normalizations["counterweight_kl"] is MetricNormalizer.TOKENS
    same(answer(loss_fn), answer(clipped_pg(**truncated("tis", 2.0, None))))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("tokn_tis", "[Dd]id you mean 'token_tis'"),
        ({"dialect": "verl", "rollout_is": "token"}, "must be a preset"),
        (3, "^method must be a preset's name or a mapping"),
    ],
)
def test_a_wrong_method_is_refused_at_once(method: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicyLoss(clipped_pg(), method)
