"""``counterweight_rl.compat.nemo_rl.ClippedPGLossFn`` beside NeMo-RL's own, from a checkout."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, GRADIENT_RTOL, LOSS, METRIC
from counterweight_rl.compat import nemo_rl
from nemo_rl.algorithms import loss as package
from nemo_rl.algorithms.loss import loss_functions as original
from nemo_rl.algorithms.loss.wrapper import SequencePackingLossWrapper
from nemo_rl_losses import (
    CONFIGS,
    DRAWS,
    LENGTH,
    NO_PENALTY,
    ROWS,
    SEQUENCE,
    SEQUENCES,
    TOKENS,
    answer,
    batch,
    clipped_pg,
    truncated,
)

pytestmark = pytest.mark.compares("compat.nemo_rl.ClippedPGLossFn")

BY_SEQUENCE = {**SEQUENCE, "sequence_level_importance_ratios": True}
COMPUTED = {
    name: config for name, config in CONFIGS.items() if "positive_example_nll_weight" not in config
} | {
    "k1": {"reference_policy_kl_type": "k1", "reference_policy_kl_penalty": 0.3},
    "k2, on-policy KL": {
        "reference_policy_kl_type": "k2",
        "reference_policy_kl_penalty": 0.3,
        "use_on_policy_kl_approximation": True,
    },
    "KL clamps that bite": {
        "reference_policy_kl_penalty": 0.3,
        "kl_input_clamp_value": 0.2,
        "kl_output_clamp_value": 0.01,
    },
    "KL without clamps": {"kl_input_clamp_value": None, "kl_output_clamp_value": None},
    "KL in the reward": {"use_kl_in_reward": True},
    "gspo, no correction": {**NO_PENALTY, **BY_SEQUENCE},
    "gspo, icepop": {**truncated("icepop", 1.3, 0.8), **BY_SEQUENCE},
    "on policy, no ratio": {
        **NO_PENALTY,
        "force_on_policy_ratio": True,
        "disable_ppo_ratio": True,
    },
    "on policy, dual clip": {**NO_PENALTY, "force_on_policy_ratio": True, "ratio_clip_c": 1.05},
}


def same(actual: Any, expected: Any) -> None:
    """Equal but for rounding, with a gradient where the masks are 1 that may be 0."""
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=LOSS["atol"])
    largest = expected[1].abs().max().item()
    torch.testing.assert_close(
        actual[1].double(),
        expected[1],
        rtol=GRADIENT_RTOL,
        atol=GRADIENT_ATOL_OF_LARGEST * largest,
    )
    assert largest > 0


@pytest.mark.parametrize("has_counts", [True, False], ids=["global", "own"])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", COMPUTED)
def test_the_loss_is_nemo_rls_own(
    documented: Callable[[str], None], name: str, draw: str, has_counts: bool
) -> None:
    config = COMPUTED[name]
    expected = answer(clipped_pg(**config), draw, has_counts=has_counts, exact=True)
    settings = original.ClippedPGLossConfig(**config)
    actual = answer(nemo_rl.ClippedPGLossFn(settings), draw, has_counts=has_counts)
    same(actual, expected)
    left_out = set()
    if name.startswith("gspo"):
        documented("sampling_importance_ratio of sequences")
        left_out.add("sampling_importance_ratio")
    assert actual[2].keys() | left_out == expected[2].keys() | left_out
    for metric in expected[2].keys() - left_out:
        assert actual[2][metric] == pytest.approx(
            expected[2][metric], rel=METRIC["rtol"], abs=METRIC["atol"]
        ), metric


@pytest.mark.parametrize("has_counts", [True, False], ids=["global", "own"])
@pytest.mark.parametrize("name", ["defaults, with a KL penalty", "icepop", "gspo", "reinforce"])
def test_a_micro_batch_without_tokens(name: str, has_counts: bool) -> None:
    found = []
    for loss_fn in (clipped_pg(**COMPUTED[name]), nemo_rl.ClippedPGLossFn(COMPUTED[name])):
        current, data = batch()
        data["sample_mask"] = torch.zeros(ROWS)
        counts = (SEQUENCES, TOKENS) if has_counts else (None, None)
        loss, metrics = loss_fn(current, data, *counts)
        loss.backward()
        assert loss.item() == 0
        assert not current.grad.any()
        found.append(metrics)
    theirs, ours = found
    for metric, value in theirs.items():
        if metric in ours or metric != "sampling_importance_ratio":
            assert ours[metric] == value, metric


def test_packed_sequences() -> None:
    """NeMo-RL's wrapper calls the loss for one sequence after another, with a dict of its own."""
    config = truncated("tis", 1.3, None)
    whole = answer(clipped_pg(**config), exact=True)
    current, data = batch()

    def prepare(logits: torch.Tensor, data: Any, **_: Any) -> Any:
        return {"next_token_logprobs": logits[:, : LENGTH - 1]}, data

    ends = torch.arange(ROWS + 1) * LENGTH
    wrapper = SequencePackingLossWrapper(nemo_rl.ClippedPGLossFn(config), prepare, ends, ends)
    packed = torch.cat([current, torch.zeros(ROWS, 1)], dim=1).reshape(1, -1)
    loss, metrics = wrapper(packed, data, SEQUENCES, TOKENS)
    loss.backward()
    same((loss.item(), current.grad), whole)
    for name in ("gen_kl_error", "approx_entropy", "is_oob_ratio"):
        assert metrics[name] == pytest.approx(whole[2][name], rel=1e-4)


def test_a_mapping_is_a_configuration() -> None:
    config = truncated("icepop", 1.3, 0.8)
    same(answer(nemo_rl.ClippedPGLossFn(config)), answer(clipped_pg(**config), exact=True))


REFUSED = {
    "gspo by token": {"sequence_level_importance_ratios": True},
    "cispo without a ratio": {"use_cispo": True, "disable_ppo_ratio": True},
    "cispo on policy": {"use_cispo": True, "force_on_policy_ratio": True},
    "cispo, dual clip": {"use_cispo": True, "ratio_clip_c": 3.0},
    "cispo, by sequence": {"use_cispo": True, **SEQUENCE},
    "tis without correction": {
        **truncated("tis", 1.3, None),
        "use_importance_sampling_correction": False,
    },
    "unknown type": truncated("tiss", 1.3, None),
    "no ratio": {**truncated("tis", 1.3, None), "truncated_importance_sampling_ratio": None},
    "ratio 0": truncated("tis", 0.0, None),
    "bounds": truncated("tis", 1.3, 1.4),
    "icepop without a lower bound": truncated("icepop", 1.3, None),
    "seq-mask-tis, gspo": {**truncated("seq-mask-tis", 1.3, 0.9), **BY_SEQUENCE},
}


@pytest.mark.parametrize("config", REFUSED.values(), ids=REFUSED)
def test_what_nemo_rl_asserts_is_refused_as_early(config: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        clipped_pg(**config)
    with pytest.raises(cw.InvalidRequestError):
        nemo_rl.ClippedPGLossFn(config)


def test_what_needs_rewards_is_refused(documented: Callable[[str], None]) -> None:
    documented("positive_example_nll_weight")
    with pytest.raises(cw.InvalidRequestError, match="needs the rewards of samples"):
        nemo_rl.ClippedPGLossFn({"positive_example_nll_weight": 0.1})


@pytest.mark.parametrize("config", [{}, truncated("seq-mask-tis", 1.1, 0.9), BY_SEQUENCE], ids=str)
def test_trainers_find_the_members_of_nemo_rls_object(config: dict[str, Any]) -> None:
    theirs = clipped_pg(**config)
    ours = pickle.loads(pickle.dumps(nemo_rl.ClippedPGLossFn(config)))
    for name in (*vars(theirs), "input_type"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_a_kl_penalty_of_other_log_probs_is_refused(documented: Callable[[str], None]) -> None:
    documented("curr_logprobs_unfiltered beside a KL penalty")
    current, data = batch()
    data["curr_logprobs_unfiltered"] = current - 0.1
    with pytest.raises(cw.InvalidRequestError, match="curr_logprobs_unfiltered"):
        nemo_rl.ClippedPGLossFn({})(current, data, None, None)


def test_other_names_are_nemo_rls_own() -> None:
    for name in package.__all__:
        ours = getattr(nemo_rl, name)
        assert (ours is getattr(package, name)) == (name != "ClippedPGLossFn")
