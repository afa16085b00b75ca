"""``counterweight_rl.hooks.slime`` in slime's own ``loss_function``, from a checkout.

slime loads the hook by the path in its arguments and runs its own reduction and scaling. megatron
is a stand-in: there is one rank, and for its kernels stands a log-softmax.
"""

from __future__ import annotations

import argparse
import math
from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS
from counterweight_rl.hooks import slime as hook
from slime.backends.megatron_utils import cp_utils
from slime.backends.megatron_utils import loss as original

pytestmark = pytest.mark.compares("hooks.slime.correct")

WORDS = 11
# Samples: prompt and response lengths; the last has no token that counts.
LENGTHS = [(2, 7), (1, 5), (3, 9), (2, 4)]
CORRECT = "counterweight_rl.hooks.slime.correct"


def log_softmax(logits: torch.Tensor, tokens: torch.Tensor, *_: Any, **options: Any) -> Any:
    log_probs = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1) if options["with_entropy"] else None
    return log_probs.gather(1, tokens.unsqueeze(1)), entropy


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(**_: Any) -> int:
        return 1

    ranks = SimpleNamespace(
        get_context_parallel_world_size=one,
        get_data_parallel_world_size=one,
        get_tensor_model_parallel_group=lambda: None,
    )
    for module in (original, cp_utils):
        monkeypatch.setattr(module, "mpu", ranks)
    monkeypatch.setattr(original, "calculate_log_probs_and_entropy", log_softmax)
    monkeypatch.setattr(hook, "_started", None)


def arguments(**changes: Any) -> argparse.Namespace:
    fields = {
        **{"loss_type": "policy_loss", "use_tis": True, "custom_tis_function_path": None},
        **{"tis_clip": 1.3, "tis_clip_low": 0.8, "eps_clip": 0.1, "eps_clip_high": 0.15},
        **{"eps_clip_c": None, "advantage_estimator": "grpo", "use_rollout_logprobs": False},
        **{"use_opsm": False, "get_mismatch_metrics": False, "calculate_per_token_loss": False},
        **{"entropy_coef": 0.01, "use_kl_loss": False, "rollout_temperature": 1.0},
        **{"rollout_top_p": 1.0, "log_probs_chunk_size": -1, "allgather_cp": False},
        **{"recompute_loss_function": False},
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
    data = {
        "unconcat_tokens": tokens,
        "total_lengths": [p + r for p, r in LENGTHS],
        "response_lengths": [r for _, r in LENGTHS],
        "rollout_mask_sums": [mask.sum() for mask in found["loss_masks"]],
    }
    return logits.requires_grad_(), {**found, **data}


def answer(args: argparse.Namespace) -> tuple[float, torch.Tensor, dict[str, float]]:
    """Returns slime's loss, gradient by the logits, and the sums that it logs."""
    logits, data = batch()
    loss, _, log = original.loss_function(args, data, 1, 8, logits)
    loss.backward()
    return loss.item(), logits.grad, dict(zip(log["keys"], log["values"].tolist()[1:], strict=True))


def same(actual: tuple[Any, ...], called: tuple[Any, ...]) -> None:
    """Equal but for rounding: slime computes in float32 only."""
    assert math.isclose(actual[0], called[0], rel_tol=LOSS["rtol"], abs_tol=1e-6)
    largest = called[1].abs().max().item()
    assert largest > 0
    torch.testing.assert_close(
        actual[1], called[1], rtol=1e-4, atol=GRADIENT_ATOL_OF_LARGEST * largest
    )


@pytest.mark.parametrize("per_token", [False, True], ids=["per_sample", "per_token"])
def test_truncation_is_the_trainers_own(per_token: bool) -> None:
    args = arguments(calculate_per_token_loss=per_token)
    called = answer(args)
    args.custom_tis_function_path = CORRECT
    actual = answer(args)
    same(actual, called)
    for name in ("loss", "pg_loss", "pg_clipfrac", "entropy_loss", "ois"):
        assert actual[2][name] == pytest.approx(called[2][name], rel=1e-4, abs=1e-6), name


def test_masked_weights_are_the_trainers_icepop(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "slime.backends.megatron_utils.loss.icepop_function"
    called = answer(arguments(custom_tis_function_path=path))
    monkeypatch.setenv("COUNTERWEIGHT_METHOD", '{"preset": "icepop", "lower": 0.8, "upper": 1.3}')
    same(answer(arguments(custom_tis_function_path=CORRECT)), called)


def test_rejected_tokens_stay_in_the_divisor() -> None:
    """slime sums over the masks that the hook returns, and divides by those of the batch."""
    args = arguments(custom_tis_function_path=CORRECT, entropy_coef=0)
    args.counterweight_method = {"preset": "k3_rs", "keep_upper": 0.04}
    actual = answer(args)
    _, data = batch()
    with cw.Client("local:") as client:
        kept = client.correct(
            rollout_log_probs=torch.cat(data["rollout_log_probs"]),
            old_log_probs=torch.cat(data["log_probs"]),
            response_mask=torch.cat(data["loss_masks"]),
            sequence_lengths=data["response_lengths"],
            method=cw.Preset("k3_rs", keep_upper=0.04),
        ).keep_mask
    rows = torch.split(kept, data["response_lengths"])
    assert [bool(row.any()) for row in rows].count(True) in (1, 2)  # of three
    plain = arguments(use_tis=False, entropy_coef=0)
    logits, data = batch()
    masked = {**data, "loss_masks": list(rows)}
    loss, _, _ = original.loss_function(plain, masked, 1, 8, logits)
    loss.backward()
    same(actual, (loss.item(), logits.grad))


def test_the_start_refuses_a_wrong_setting() -> None:
    start = original.load_function("counterweight_rl.hooks.slime.start")
    with pytest.raises(ValueError, match="counterweight_targt is not a setting; did you mean"):
        start(arguments(counterweight_targt="local:"))
    start(arguments(counterweight_method="token_tis"))
