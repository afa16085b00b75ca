"""``counterweight_rl.hooks.slime`` in slime's own ``loss_function``, from a checkout.

slime loads the hook by the path in its arguments and runs its own reduction and scaling. megatron
is a stand-in: there is one rank, and a log-softmax replaces its kernels.
"""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import counterweight_rl.compat.slime
import megatron_trainer
import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST
from counterweight_rl import compat
from counterweight_rl.hooks import slime as hook
from megatron_trainer import (
    DRAWS,
    ICEPOP,
    Answer,
    batch,
    check_truncation,
    kept_rows,
    log_softmax,
    same,
)
from slime.backends.megatron_utils import cp_utils
from slime.backends.megatron_utils import loss as original
from slime.utils import ppo_utils

pytestmark = pytest.mark.compares("hooks.slime.correct")

CORRECT = "counterweight_rl.hooks.slime.correct"


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(**_: Any) -> int:
        return 1

    ranks = SimpleNamespace(
        get_context_parallel_world_size=one,
        get_context_parallel_group=lambda: None,
        get_data_parallel_world_size=one,
        get_tensor_model_parallel_group=lambda: None,
    )
    for module in (original, cp_utils):
        monkeypatch.setattr(module, "mpu", ranks)
    monkeypatch.setattr(original, "calculate_log_probs_and_entropy", log_softmax)
    monkeypatch.setattr(hook, "_started", None)


def arguments(**changes: Any) -> argparse.Namespace:
    return megatron_trainer.arguments(**{"rollout_top_p": 1.0, **changes})


def answer(args: argparse.Namespace) -> Answer:
    """Returns slime's loss, gradient by the logits, and the sums that it logs."""
    logits, data = batch(args.draw)
    loss, _, log = original.loss_function(args, data, 1, 8, logits)
    loss.backward()
    return loss.item(), logits.grad, dict(zip(log["keys"], log["values"].tolist()[1:], strict=True))


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
def test_truncation_is_the_trainers_own(per_token: bool, draw: str) -> None:
    args = arguments(calculate_per_token_loss=per_token, draw=draw)
    check_truncation(answer, args, CORRECT)


@pytest.mark.parametrize("estimator", ["cispo", "gspo"])
def test_the_trainers_other_losses_are_weighted(estimator: str) -> None:
    check_truncation(answer, arguments(advantage_estimator=estimator), CORRECT)


@pytest.mark.parametrize("option", [{"eps_clip_c": 1.05}, {"use_opsm": True, "opsm_delta": 0.0}])
def test_the_trainers_options_are_weighted(option: dict[str, Any]) -> None:
    check_truncation(answer, arguments(**option), CORRECT)


def test_masked_weights_are_the_trainers_icepop(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "slime.backends.megatron_utils.loss.icepop_function"
    called = answer(arguments(custom_tis_function_path=path))
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", ICEPOP)
    same(answer(arguments(custom_tis_function_path=CORRECT)), called)


# The YAML of slime's MIS example, and values of it that keep some tokens of the batch, not all.
MIS = {
    **{"tis_mode": "truncate", "tis_level": "token", "tis_upper_bound": 2.0},
    **{"tis_lower_bound": 0.5, "use_rs": True, "rs_level": "token", "rs_lower_bound": None},
    **{"rs_upper_bound": None, "rs_veto_threshold": 1e-4, "tis_batch_normalize": True},
}
MIS_CHANGES: dict[str, dict[str, Any]] = {
    "example": {},
    "narrow": {"rs_lower_bound": 0.8, "rs_upper_bound": 1.2, "rs_veto_threshold": 0.6},
    "mask": {"tis_mode": "mask", "tis_lower_bound": 0.8, "tis_upper_bound": 1.3, "use_rs": False},
    "clip": {"tis_mode": "clip", "tis_lower_bound": 0.9, "tis_upper_bound": 1.1},
    "sequence": {"tis_level": "sequence", "rs_level": "geometric", "rs_upper_bound": 1.1},
    "geometric": {"tis_level": "geometric", "tis_batch_normalize": False},
}


@pytest.mark.parametrize("changes", MIS_CHANGES.values(), ids=MIS_CHANGES)
def test_the_yaml_of_the_mis_example_is_mis(changes: dict[str, Any]) -> None:
    example = "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
    given = {**MIS, **changes}
    called = answer(arguments(custom_tis_function_path=example, **given))
    actual = answer(arguments(custom_tis_function_path=CORRECT, **given))
    same(actual, called)
    for name in ("kl", "k3"):
        own = called[2]["mis_kl" if name == "kl" else "mis_k3_kl"]
        assert actual[2][f"counterweight_{name}"] == pytest.approx(own, rel=1e-4, abs=1e-6)


FUNCTIONS = {
    "vanilla_tis_function": None,
    "icepop_function": "slime.backends.megatron_utils.loss.icepop_function",
    "compute_mis_weights_with_cp": "examples.train_infer_mismatch_helper.mis"
    ".compute_mis_weights_with_cp",
}


@pytest.mark.compares("compat.slime")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_slimes_names(name: str, draw: str) -> None:
    given = {**MIS, "draw": draw}
    called = answer(arguments(custom_tis_function_path=FUNCTIONS[name], **given))
    path = f"counterweight_rl.compat.slime.{name}"
    actual = answer(arguments(custom_tis_function_path=path, **given))
    same(actual, called)
    left_out = {key for key in called[2] if key.startswith("mis_")} - actual[2].keys()
    assert called[2].keys() - actual[2].keys() == left_out
    for metric, value in actual[2].items():
        assert value == pytest.approx(called[2][metric], rel=1e-4, abs=1e-6), metric


# Settings of the losses that slime computes by ``compute_policy_loss``.
OF_TOKENS: dict[str, dict[str, Any]] = {
    "plain": {"use_tis": False},
    "defaults": {"use_tis": False, "eps_clip": 0.2, "eps_clip_high": 0.2},
    "dual clip": {"use_tis": False, "eps_clip_c": 1.05},
    "gspo": {"use_tis": False, "advantage_estimator": "gspo", "eps_clip": 0.01},
    "per token": {"use_tis": False, "calculate_per_token_loss": True},
    "tis": {},
    "opsm": {"use_tis": False, "use_opsm": True, "opsm_delta": 0.0},
    "KL": {"use_tis": False, "use_kl_loss": True},
}


@pytest.mark.compares("compat.slime")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", OF_TOKENS)
def test_the_loss_of_tokens(monkeypatch: pytest.MonkeyPatch, name: str, draw: str) -> None:
    args = arguments(**OF_TOKENS[name], draw=draw)
    with torch.compiler.set_stance("force_eager"):
        called = answer(args)
    monkeypatch.setattr(original, "compute_policy_loss", compat.slime.compute_policy_loss)
    actual = answer(args)
    same(actual, called)
    assert actual[2].keys() == called[2].keys()
    for metric, value in called[2].items():
        assert actual[2][metric] == pytest.approx(value, rel=1e-4, abs=1e-6), metric


@pytest.mark.compares("compat.slime")
@pytest.mark.parametrize("seed", range(8))
def test_the_loss_of_tokens_alone(seed: int) -> None:
    """Random tokens, most of them to avoid, some beyond each bound."""
    generator = torch.Generator().manual_seed(seed)
    kl = 0.5 * torch.randn(200, generator=generator)
    kl[:20] *= 8
    advantages = torch.randn(200, generator=generator) - 0.5
    upstream = torch.rand(200, generator=generator)
    bounds = (0.2, 0.28, None if seed % 2 else 3.0)
    found = []
    for function, dtype in (
        (ppo_utils.compute_policy_loss, torch.float64),
        (compat.slime.compute_policy_loss, torch.float32),
    ):
        given = kl.to(dtype).requires_grad_()
        with torch.compiler.set_stance("force_eager"):
            losses, clipped = function(given, advantages.to(dtype), *bounds)
        (losses * upstream).sum().backward()
        found.append((losses.double(), given.grad.double(), clipped.float()))
    (losses, gradient, clipped), actual = found
    torch.testing.assert_close(actual[0], losses, rtol=2e-5, atol=1e-7)
    atol = GRADIENT_ATOL_OF_LARGEST * gradient.abs().max().item()
    torch.testing.assert_close(actual[1], gradient, rtol=2e-5, atol=atol)
    assert torch.equal(actual[2], clipped)
    assert 0 < clipped.mean() < 1


def test_a_dialect_has_the_drift_too() -> None:
    """Another system's metrics have other names."""
    args = arguments(custom_tis_function_path=CORRECT)
    plain = answer(args)
    args.counterweight_method = {"dialect": "verl", "rollout_is": "token"}
    hook._started = None
    actual = answer(args)
    for name in ("counterweight_kl", "counterweight_k3"):
        assert actual[2][name] == pytest.approx(plain[2][name], rel=1e-6)
        assert actual[2][name] != 0


def test_rejected_tokens_stay_in_the_divisor() -> None:
    """slime sums over the masks that the hook returns, and divides by those of the batch."""
    args = arguments(custom_tis_function_path=CORRECT, entropy_coef=0)
    args.counterweight_method = {"preset": "k3_rs", "keep_upper": 0.04}
    actual = answer(args)
    _, data = batch()
    rows = kept_rows(cw.Preset("k3_rs", keep_upper=0.04), data)
    plain = arguments(use_tis=False, entropy_coef=0)
    logits, data = batch()
    masked = {**data, "loss_masks": rows}
    loss, _, _ = original.loss_function(plain, masked, 1, 8, logits)
    loss.backward()
    same(actual, (loss.item(), logits.grad))


def test_the_start_refuses_a_wrong_setting() -> None:
    start = original.load_function("counterweight_rl.hooks.slime.start")
    with pytest.raises(ValueError, match="counterweight_targt is not a setting; did you mean"):
        start(arguments(counterweight_targt="local:"))
    start(arguments(counterweight_method="token_tis"))
