"""``counterweight_rl.hooks.miles`` and ``.slime`` in miles' own ``loss_function`` (miles-rl 0.0.2).

miles loads the hooks by the paths in its arguments and runs its own reduction and scaling. Its
log-probs come from Megatron's kernels, for which a log-softmax stands in; ray and httpx are
stand-ins. slime, of which miles is a fork, has no release on PyPI: test_slime_hook.py needs a checkout.
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

import counterweight_rl as cw
import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS
from counterweight_rl.hooks import miles as miles_hook
from counterweight_rl.hooks import slime as slime_hook
from miles.backends.training_utils import loss as original
from miles.backends.training_utils import parallel

WORDS = 11
# Samples: prompt and response lengths; the last has no token that counts.
LENGTHS = [(2, 7), (1, 5), (3, 9), (2, 4)]
CORRECT = "counterweight_rl.hooks.miles.correct"
POLICY_LOSS = "counterweight_rl.hooks.miles.policy_loss"


def log_softmax(logits: torch.Tensor, tokens: torch.Tensor, *_: Any, **options: Any) -> Any:
    log_probs = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1) if options["with_entropy"] else None
    return log_probs.gather(1, tokens.unsqueeze(1)), entropy


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = parallel.GroupInfo(rank=0, size=1, group=None)
    names = ("intra_dp", "intra_dp_cp", "cp", "tp", "pp", "ep", "etp")
    parallel.set_parallel_state(parallel.ParallelState(**dict.fromkeys(names, one)))
    monkeypatch.setattr(original, "calculate_log_probs_and_entropy", log_softmax)
    monkeypatch.setattr(slime_hook, "_started", None)
    monkeypatch.setattr(miles_hook, "_checked_in", None)


def arguments(**changes: Any) -> argparse.Namespace:
    fields = {
        **{"loss_type": "policy_loss", "use_tis": True, "custom_tis_function_path": None},
        **{"tis_clip": 1.3, "tis_clip_low": 0.8, "eps_clip": 0.1, "eps_clip_high": 0.15},
        **{"advantage_estimator": "grpo", "use_rollout_logprobs": False, "use_opsm": False},
        **{"get_mismatch_metrics": False, "calculate_per_token_loss": False},
        **{"entropy_coef": 0.01, "use_kl_loss": False, "qkv_format": "thd"},
        **{"rollout_temperature": 1.0, "log_probs_chunk_size": -1, "true_on_policy_mode": False},
        **{"allgather_cp": False, "recompute_loss_function": False, "global_batch_size": 8},
        **{"use_dynamic_global_batch_size": False, "custom_loss_function_path": None},
    }
    return argparse.Namespace(**{**fields, **changes})


def batch() -> tuple[torch.Tensor, dict[str, Any]]:
    """Returns logits and a micro-batch."""
    generator = torch.Generator().manual_seed(41)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    tokens = [torch.randint(WORDS, (p + r,), generator=generator) for p, r in LENGTHS]
    logits = normal(1, sum(map(len, tokens)), WORDS)
    ends = torch.tensor([len(one) for one in tokens]).cumsum(0).tolist()
    logs = torch.log_softmax(logits[0], dim=-1)
    found = {"log_probs": [], "rollout_log_probs": [], "advantages": [], "loss_masks": []}
    for row, ((_, size), end, words) in enumerate(zip(LENGTHS, ends, tokens, strict=True)):
        current = logs[end - size - 1 : end - 1].gather(1, words[-size:].unsqueeze(1)).squeeze(1)
        old = current + 0.15 * normal(size)
        mask = torch.rand(size, generator=generator) < 0.8
        found["log_probs"].append(old)
        found["rollout_log_probs"].append(old + 0.3 * normal(size))
        found["advantages"].append(normal(1).expand(size).clone())
        found["loss_masks"].append((mask & (row != len(LENGTHS) - 1)).int())
    lengths = {
        "unconcat_tokens": tokens,
        "total_lengths": [p + r for p, r in LENGTHS],
        "response_lengths": [r for _, r in LENGTHS],
    }
    return logits.requires_grad_(), {**found, **lengths}


def answer(args: argparse.Namespace) -> tuple[float, torch.Tensor, dict[str, float]]:
    """Returns miles' loss, gradient by the logits, and the averages that it logs."""
    logits, data = batch()
    loss, _, log = original.loss_function(args, data, 1, logits)
    loss.backward()
    count, *values = log["values"].tolist()
    averages = dict(zip(log["keys"], (value / count for value in values), strict=True))
    return loss.item(), logits.grad, averages


def same(actual: tuple[Any, ...], called: tuple[Any, ...]) -> None:
    """Equal but for rounding: miles computes in float32 only."""
    assert math.isclose(actual[0], called[0], rel_tol=LOSS["rtol"], abs_tol=1e-6)
    largest = called[1].abs().max().item()
    assert largest > 0
    torch.testing.assert_close(
        actual[1], called[1], rtol=1e-4, atol=GRADIENT_ATOL_OF_LARGEST * largest
    )


@pytest.mark.compares("hooks.slime.correct")
@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
def test_truncation_is_the_trainers_own(per_token: bool) -> None:
    args = arguments(calculate_per_token_loss=per_token)
    called = answer(args)
    args.custom_tis_function_path = CORRECT
    actual = answer(args)
    same(actual, called)
    for name in ("loss", "pg_loss", "pg_clipfrac", "entropy_loss", "ois"):
        assert actual[2][name] == pytest.approx(called[2][name], rel=1e-4, abs=1e-6), name


@pytest.mark.compares("hooks.slime.correct")
def test_masked_weights_are_the_trainers_icepop(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "miles.backends.training_utils.loss.icepop_function"
    called = answer(arguments(custom_tis_function_path=path))
    icepop = '{"preset": "icepop", "lower": 0.8, "upper": 1.3}'
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", icepop)
    same(answer(arguments(custom_tis_function_path=CORRECT)), called)


@pytest.mark.compares("hooks.slime.correct")
def test_rejected_tokens_leave_the_divisor() -> None:
    """The masks that the hook returns are those of the client, and miles divides by them."""
    args = arguments(custom_tis_function_path=CORRECT, entropy_coef=0)
    args.counterweight_method = {
        "dialect": "verl",
        "rollout_rs": "seq_mean_k3",
        "rollout_rs_threshold": 0.04,
    }
    _, data = batch()
    with cw.Client("local:") as client:
        kept = client.correct(
            rollout_log_probs=torch.cat(data["rollout_log_probs"]),
            old_log_probs=torch.cat(data["log_probs"]),
            response_mask=torch.cat(data["loss_masks"]),
            sequence_lengths=data["response_lengths"],
            method=slime_hook._arguments.method_of(args),
        ).keep_mask
    rows = torch.split(kept, data["response_lengths"])
    assert [bool(row.any()) for row in rows].count(True) in (1, 2)  # of three

    def reference(args: Any, **given: Any) -> Any:
        return given["pg_loss"], list(rows), {}

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
    environment = {**os.environ, "COUNTERWEIGHT_TARGET": "local:", "OMP_NUM_THREADS": "1"}
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


@pytest.mark.compares("hooks.miles.policy_loss")
@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
@pytest.mark.parametrize("use_tis", [False, True], ids=["plain", "tis"])
def test_policy_loss_is_the_trainers_own(use_tis: bool, per_token: bool) -> None:
    args = arguments(use_tis=use_tis, calculate_per_token_loss=per_token)
    called = answer(args)
    args.loss_type, args.custom_loss_function_path = "custom_loss", POLICY_LOSS
    actual = answer(args)
    same(actual, called)
    for name in ("loss", "pg_loss", "entropy_loss"):
        assert actual[2][name] == pytest.approx(called[2][name], rel=1e-4, abs=1e-6), name


@pytest.mark.compares("hooks.miles.policy_loss")
def test_policy_loss_of_a_method() -> None:
    """A surrogate, weights and rules that miles does not have, against their formulas."""
    args = arguments(loss_type="custom_loss", custom_loss_function_path=POLICY_LOSS)
    args.entropy_coef = 0
    loss = {"surrogate": "reinforce"}
    args.counterweight_method = {"preset": "icepop", "lower": 0.8, "upper": 1.3}
    args.counterweight_method["policy_loss"] = loss
    actual = answer(args)
    logits, data = batch()
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
        total = total + terms.sum() / mask.sum().clamp(min=1)
    (total / args.global_batch_size).backward()
    assert logits.grad is not None
    same(actual, (total.item() / args.global_batch_size, logits.grad))


@pytest.mark.compares("hooks.slime.start")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counterweight_targt": "local:"}, "counterweight_targt is not a setting; did you mean"),
        ({"counterweight_method": "tokn_tis"}, "Did you mean 'token_tis'"),
        ({"counterweight_method": 3}, "^counterweight_method must be a preset's name or a mapping"),
        ({"counterweight_method": "{"}, "^counterweight_method is not valid JSON"),
        ({"counterweight_method": {"preset": "token_tis", "uper": 2.0}}, "uper"),
    ],
)
def test_a_wrong_setting_ends_the_start(changes: dict[str, Any], message: str) -> None:
    start = original.load_function("counterweight_rl.hooks.miles.start")
    with pytest.raises(ValueError, match=message):
        start(arguments(**changes))
    start(arguments(counterweight_method="token_tis"))


@pytest.mark.compares("hooks.miles.policy_loss")
def test_unsupported_arguments() -> None:
    args = arguments(use_kl_loss=True, loss_type="custom_loss")
    args.custom_loss_function_path = POLICY_LOSS
    with pytest.raises(ValueError, match=r"^--use-kl-loss cannot be used with"):
        answer(args)
