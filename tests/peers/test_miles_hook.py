"""``counterweight_rl.hooks.miles`` and ``.slime`` in miles' own ``loss_function``.

It is that of miles-rl 0.0.2, or of a checkout.

miles loads the hooks by the paths in its arguments and runs its own reduction and scaling. Its
log-probs are a log-softmax instead of Megatron's kernels; ray and httpx are stand-ins. slime, the
origin of miles, has no release on PyPI: test_slime_hook.py needs a checkout.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Any

import megatron_trainer
import pytest
import releases
import torch
from counterweight_rl.hooks import miles as miles_hook
from counterweight_rl.hooks import slime as slime_hook
from megatron_trainer import (
    DRAWS,
    ICEPOP,
    LENGTHS,
    Answer,
    batch,
    check_truncation,
    kept_rows,
    log_softmax,
    same,
)
from miles.backends.training_utils import loss as original
from miles.backends.training_utils import parallel
from miles.utils.misc import load_function

# miles-rl 0.0.2 has neither shared divisors nor a dual clip.
AT_HEAD = not releases.RELEASE
CORRECT = "counterweight_rl.hooks.miles.correct"
POLICY_LOSS = "counterweight_rl.hooks.miles.policy_loss"


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = parallel.GroupInfo(rank=0, size=1, group=None)
    names = ["intra_dp", "intra_dp_cp", "cp", "tp", "pp", "ep", "etp"]
    if AT_HEAD:
        names.append("indep_dp")
    parallel.set_parallel_state(parallel.ParallelState(**dict.fromkeys(names, one)))
    module = sys.modules[original.get_log_probs_and_entropy.__module__]
    monkeypatch.setattr(module, "calculate_log_probs_and_entropy", log_softmax)
    monkeypatch.setattr(slime_hook, "_started", None)
    monkeypatch.setattr(miles_hook, "_checked_in", None)


def arguments(**changes: Any) -> argparse.Namespace:
    fields = {
        **{"qkv_format": "thd", "true_on_policy_mode": False, "global_batch_size": 8},
        **{"use_dynamic_global_batch_size": False, "custom_loss_function_path": None},
        **{"skip_actor_forward_only": False, "observe_training_entropy": False, "lacks": ()},
    }
    return megatron_trainer.arguments(**{**fields, **changes})


def answer(args: argparse.Namespace) -> Answer:
    """Returns miles' loss, gradient by the logits, and the averages that it logs."""
    logits, data = batch(args.draw)
    if not AT_HEAD:
        del data["rollout_mask_sums"]
    for name in args.lacks:
        del data[name]
    loss, _, log = original.loss_function(args, data, 1, logits)
    loss.backward()
    count, *values = log["values"].tolist()
    averages = dict(zip(log["keys"], (value / count for value in values), strict=True))
    return loss.item(), logits.grad, averages


@pytest.mark.compares("hooks.slime.correct")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
def test_truncation_is_the_trainers_own(per_token: bool, draw: str) -> None:
    args = arguments(calculate_per_token_loss=per_token, draw=draw)
    check_truncation(answer, args, CORRECT)


@pytest.mark.compares("hooks.slime.correct")
@pytest.mark.skipif(not AT_HEAD, reason="miles-rl 0.0.2 always has both")
@pytest.mark.parametrize(
    ("lacks", "message"),
    [("log_probs", "^the trainer gives no train_log_probs"), ("rollout_log_probs", "no rollout_")],
)
def test_log_probs_that_are_missing_are_named(lacks: str, message: str) -> None:
    args = arguments(
        custom_tis_function_path=CORRECT,
        get_mismatch_metrics=True,
        use_tis=False,
        use_rollout_logprobs=lacks == "log_probs",
        lacks=(lacks,),
    )
    with pytest.raises(ValueError, match=message):
        answer(args)


@pytest.mark.compares("hooks.slime.correct")
def test_masked_weights_are_the_trainers_icepop(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "loss_hub.corrections" if AT_HEAD else "loss"
    path = f"miles.backends.training_utils.{module}.icepop_function"
    called = answer(arguments(custom_tis_function_path=path))
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", ICEPOP)
    same(answer(arguments(custom_tis_function_path=CORRECT)), called)


@pytest.mark.compares("hooks.slime.correct")
def test_rejected_tokens() -> None:
    """The masks that the hook returns are those of the client, and miles sums over them."""
    args = arguments(custom_tis_function_path=CORRECT, entropy_coef=0)
    args.counterweight_method = {
        "dialect": "verl",
        "rollout_rs": "seq_mean_k3",
        "rollout_rs_threshold": 0.04,
    }
    _, data = batch()
    rows = kept_rows(slime_hook._arguments.method_of(args), data)

    def reference(args: Any, **given: Any) -> Any:
        return given["pg_loss"], rows, {}

    module = importlib.import_module("counterweight_rl.hooks.miles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "correct", reference)
        called = answer(args)
    actual = answer(args)
    same(actual, called)
    shares = [
        1 - (row.sum() / mask.sum()).item()
        for row, mask in zip(rows, data["loss_masks"], strict=True)
        if mask.any()
    ]
    assert actual[2]["counterweight_dropped"] == pytest.approx(sum(shares) / len(LENGTHS))


@pytest.mark.compares("hooks.slime.correct")
def test_context_parallelism(tmp_path: pathlib.Path) -> None:
    here = pathlib.Path(__file__).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, here / "miles_context_parallel.py", str(rank), tmp_path / "store"],
            env=environment,
            cwd=here,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            output, _ = rank.communicate(timeout=300)
            assert rank.returncode == 0
            (loss, dropped), (of_both, dropped_of_both) = json.loads(output)
            assert of_both == pytest.approx(loss, rel=1e-6)
            assert dropped_of_both == pytest.approx(dropped, rel=1e-6)
            assert dropped > 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def check_policy_loss(args: argparse.Namespace) -> None:
    called = answer(args)
    args.loss_type, args.custom_loss_function_path = "custom_loss", POLICY_LOSS
    actual = answer(args)
    same(actual, called)
    assert all(map(math.isfinite, actual[2].values())), actual[2]
    names = ("loss", "pg_loss", "entropy_loss", "ppo_kl", "pg_clipfrac")
    for name in (*names, "kl_loss") if args.use_kl_loss else names:
        assert actual[2][name] == pytest.approx(called[2][name], rel=1e-4, abs=1e-6), name


MIS_EXAMPLE = "examples.infra_features.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
MIS = {
    **{"tis_mode": "clip", "tis_level": "token", "tis_upper_bound": 1.3},
    **{"tis_lower_bound": 0.8, "use_rs": True, "rs_level": "token", "rs_lower_bound": 0.7},
    **{"rs_upper_bound": 1.5, "rs_veto_threshold": 0.5, "tis_batch_normalize": True},
}


@pytest.mark.compares("hooks.miles.correct")
@pytest.mark.skipif(not AT_HEAD, reason="miles-rl 0.0.2 has other denominators")
def test_the_yaml_of_the_mis_example_is_mis() -> None:
    called = answer(arguments(custom_tis_function_path=MIS_EXAMPLE, **MIS))
    same(answer(arguments(custom_tis_function_path=CORRECT, **MIS)), called)
    whole = {"loss_type": "custom_loss", "custom_loss_function_path": POLICY_LOSS}
    for path in (CORRECT, MIS_EXAMPLE):
        same(answer(arguments(custom_tis_function_path=path, **whole, **MIS)), called)


FUNCTIONS = {
    "vanilla_tis_function": None,
    "icepop_function": "miles.backends.training_utils.loss_hub.corrections.icepop_function",
    "compute_mis_weights_with_cp": MIS_EXAMPLE,
}


@pytest.mark.compares("compat.miles")
@pytest.mark.skipif(not AT_HEAD, reason="miles-rl 0.0.2 has them elsewhere")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_miles_names(name: str, draw: str) -> None:
    given = {**MIS, "draw": draw}
    called = answer(arguments(custom_tis_function_path=FUNCTIONS[name], **given))
    path = f"counterweight_rl.compat.miles.{name}"
    actual = answer(arguments(custom_tis_function_path=path, **given))
    same(actual, called)
    for metric, value in actual[2].items():
        assert value == pytest.approx(called[2][metric], rel=1e-4, abs=1e-6), metric


# Arguments that change the trainer's own loss, which the hook has too.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gspo": {"advantage_estimator": "gspo"},
    "rollout as old": {"use_rollout_logprobs": True, "lacks": ("log_probs",)},
}
if AT_HEAD:
    OPTIONS |= {
        "dual clip": {"eps_clip_c": 1.05},
        "gspo, dual clip": {"advantage_estimator": "gspo", "eps_clip_c": 1.05},
        "no forward pass": {"skip_actor_forward_only": True, "lacks": ("log_probs",)},
        "no forward pass, gspo": {
            **{"skip_actor_forward_only": True, "lacks": ("log_probs",)},
            "advantage_estimator": "gspo",
        },
        "a forward pass to ignore": {"skip_actor_forward_only": True},
        "entropy is only logged": {"observe_training_entropy": True, "entropy_coef": 0.0},
        "kl": {"use_kl_loss": True},
        "low variance kl": {"use_kl_loss": True, "kl_loss_type": "low_var_kl"},
        "unbiased kl, gspo": {
            **{"use_kl_loss": True, "kl_loss_type": "k2", "use_unbiased_kl": True},
            "advantage_estimator": "gspo",
        },
        "mis": {"custom_tis_function_path": MIS_EXAMPLE, **MIS},
    }


@pytest.mark.compares("hooks.miles.policy_loss")
@pytest.mark.skipif(not AT_HEAD, reason="miles-rl 0.0.2 has other denominators")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("estimator", ["grpo", "gspo"])
def test_opsm_is_the_trainers_own(estimator: str, draw: str) -> None:
    check_policy_loss(
        arguments(use_tis=False, use_opsm=True, advantage_estimator=estimator, draw=draw)
    )


@pytest.mark.compares("hooks.miles.policy_loss")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
@pytest.mark.parametrize("use_tis", [False, True], ids=["plain", "tis"])
@pytest.mark.parametrize("option", OPTIONS)
def test_policy_loss_is_the_trainers_own(
    option: str, use_tis: bool, per_token: bool, draw: str
) -> None:
    if use_tis and OPTIONS[option].get("use_rollout_logprobs"):
        pytest.skip("miles refuses both")
    check_policy_loss(
        arguments(use_tis=use_tis, calculate_per_token_loss=per_token, draw=draw, **OPTIONS[option])
    )


@pytest.mark.compares("hooks.miles.policy_loss")
# Every weight of "one_token" lies outside the bounds.
@pytest.mark.parametrize("draw", [d for d in DRAWS if d != "one_token"] if AT_HEAD else ["plain"])
def test_policy_loss_of_a_method(draw: str) -> None:
    """A surrogate, weights and rules that miles does not have, against their formulas."""
    args = arguments(loss_type="custom_loss", custom_loss_function_path=POLICY_LOSS, draw=draw)
    args.entropy_coef = 0
    loss = {"surrogate": "reinforce"}
    args.counterweight_method = {"preset": "icepop", "lower": 0.8, "upper": 1.3}
    args.counterweight_method["policy_loss"] = loss
    actual = answer(args)
    logits, data = batch(draw)
    scores = torch.log_softmax(logits[0].double(), dim=-1)
    total, end = torch.zeros((), dtype=torch.float64), 0
    for row, words in enumerate(data["unconcat_tokens"]):
        end += len(words)
        size = data["response_lengths"][row]
        current = scores[end - size - 1 : end - 1].gather(1, words[-size:].unsqueeze(1)).squeeze(1)
        ratio = (data["log_probs"][row] - data["rollout_log_probs"][row]).double().exp()
        weight = torch.where((ratio >= 0.8) & (ratio <= 1.3), ratio, 0)
        mask = data["loss_masks"][row]
        terms = -weight * data["advantages"][row] * current * mask
        total = total + terms.sum() / data["rollout_mask_sums"][row].clamp(min=1)
    (total / args.global_batch_size).backward()
    assert logits.grad is not None
    same(actual, (total.item() / args.global_batch_size, logits.grad))


@pytest.mark.compares("hooks.miles.policy_loss")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
@pytest.mark.parametrize("estimator", ["grpo", "gspo"])
@pytest.mark.parametrize("preset", [ICEPOP, '{"preset": "k3_rs", "keep_upper": 0.04}'])
def test_a_method_without_a_loss_corrects_the_trainers_own(
    preset: str, estimator: str, per_token: bool, draw: str
) -> None:
    """The trainer's loss, corrected by the other hook, is the whole loss of this one."""
    args = arguments(
        counterweight_method=preset,
        custom_tis_function_path=CORRECT,
        advantage_estimator=estimator,
        calculate_per_token_loss=per_token,
        draw=draw,
    )
    if "k3_rs" in preset and (not AT_HEAD or draw.startswith("one_")):
        pytest.skip("miles-rl 0.0.2 divides by the kept tokens; these draws would have none")
    check_policy_loss(args)


@pytest.mark.compares("hooks.slime.start")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counterweight_targt": "local:"}, "counterweight_targt is not a setting; did you mean"),
        ({"counterweight_method": "tokn_tis"}, "[Dd]id you mean 'token_tis'"),
        ({"counterweight_method": 3}, "^counterweight_method must be a preset's name or a mapping"),
        ({"counterweight_method": "{"}, "^counterweight_method is not valid JSON"),
        ({"counterweight_method": {"preset": "token_tis", "uper": 2.0}}, "uper"),
    ],
)
def test_a_wrong_setting_ends_the_start(changes: dict[str, Any], message: str) -> None:
    start = load_function("counterweight_rl.hooks.miles.start")
    with pytest.raises(ValueError, match=message):
        start(arguments(**changes))
    start(arguments(counterweight_method="token_tis"))


@pytest.mark.compares("hooks.miles.policy_loss")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"use_kl_loss": True, "lacks": ("ref_log_probs",)}, "ref_log_probs"),
        ({"use_kl_loss": True, "kl_loss_type": "k4"}, "method.block.kl_loss_type"),
        ({"use_opsm": True}, "method.block.use_opsm"),
        ({"use_opd": True}, "method.block.use_opd"),
        ({"get_mismatch_metrics": True}, "^--get-mismatch-metrics cannot be used with"),
        (
            {"use_kl_loss": True, "use_opsm": True, "counterweight_method": "token_tis"},
            r"^--use-kl-loss and --use-opsm cannot be used with .*policy_loss with a method",
        ),
        (
            {"custom_tis_function_path": "a.b", "counterweight_method": "token_tis"},
            "^--custom-tis-function-path cannot be used with",
        ),
        (
            {"custom_pg_loss_reducer_function_path": "a.b"},
            "method.block.custom_pg_loss_reducer_function_path",
        ),
        ({"custom_tis_function_path": "a.b"}, "method.block.custom_tis_function_path"),
        ({"use_rollout_logprobs": True}, "method.block.use_tis"),
    ],
)
def test_unsupported_arguments(given: dict[str, Any], named: str) -> None:
    args = arguments(loss_type="custom_loss", custom_loss_function_path=POLICY_LOSS, **given)
    with pytest.raises(ValueError, match=named):
        answer(args)


@pytest.mark.compares("hooks.miles.policy_loss")
def test_the_old_policys_log_probs_are_needed() -> None:
    args = arguments(loss_type="custom_loss", custom_loss_function_path=POLICY_LOSS)
    args.lacks = ("log_probs",)
    with pytest.raises(ValueError, match=r"^the batch has no log_probs of the old policy"):
        answer(args)
