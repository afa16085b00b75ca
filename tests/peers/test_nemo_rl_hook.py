"""``counterweight_rl.hooks.nemo_rl`` beside NeMo-RL's own ``ClippedPGLossFn``, from a checkout.

The wrapped loss is called as NeMo-RL's trainers call it, on its own BatchedDataDict, and by its
wrapper for packed sequences. ray, hydra, and the modules of workers and loggers are stand-ins.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from counterweight_rl.hooks.nemo_rl import PolicyLoss
from nemo_rl.algorithms.loss.interfaces import LossFunction, LossInputType, MetricNormalizer
from nemo_rl.algorithms.loss.wrapper import SequencePackingLossWrapper
from nemo_rl_losses import (
    CONFIGS,
    CORRECTED,
    LENGTH,
    NO_PENALTY,
    ROWS,
    SEQUENCE,
    SEQUENCES,
    TOKENS,
    answer,
    batch,
    clipped_pg,
    same,
    truncated,
)

pytestmark = pytest.mark.compares("hooks.nemo_rl.PolicyLoss")


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
