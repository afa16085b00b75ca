"""``counterweight_rl.hooks.openrlhf`` under OpenRLHF's own ``ActorPPOTrainer``.

The trainer's constructor makes the loss from its command line's options; ray, deepspeed and
packages for models are stand-ins, and no model runs.
"""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import openrlhf.models as head
import pytest
import random_batches
import releases
import stand_ins
import torch
from comparison import in_float64, same_gradient, same_loss
from counterweight_rl.compat.openrlhf import PolicyLoss
from counterweight_rl.hooks.openrlhf import install
from openrlhf.models import loss

pytestmark = [
    pytest.mark.compares("hooks.openrlhf"),
    pytest.mark.filterwarnings("ignore:method.dialect"),
]

# The trainer's module imports them besides the loss.
stand_ins.install(
    *("ray", "vllm", "peft", "PIL", "bitsandbytes", "flash_attn", "optree"),
    *("torchdata", "wandb", "tensorboard", "pylatexenc", "latex2sympy2_extended", "word2number"),
)
for package in ("openrlhf.trainer", "openrlhf.trainer.ray"):
    root = pathlib.Path(loss.__file__).parents[2]
    stand_ins.skip_init(package, str(root.joinpath(*package.split("."))))
head.PolicyLoss, head.aggregate_loss = loss.PolicyLoss, loss.aggregate_loss
head.Actor = head.get_llm_for_sequence_regression = object

from openrlhf.trainer.ray import ppo_actor  # noqa: E402

ORIGINAL = loss.PolicyLoss
BY_LEVEL = releases.is_at_least("0.11.2")


@pytest.fixture(autouse=True)
def hook(service: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ppo_actor, "torch_dist_barrier_and_cuda_sync", lambda: None)
    monkeypatch.setattr(ppo_actor, "NaiveReplayBuffer", lambda *_: None)
    for module in (head, loss, ppo_actor):
        monkeypatch.setattr(module, "PolicyLoss", ORIGINAL)


def correction() -> dict[str, Any]:
    if BY_LEVEL:
        return {
            "is_correction_level": "token",
            "is_correction_mode": "mask",
            "is_correction_gating": "ratio",
            "is_correction_threshold": [0.7, 1.4],
        }
    return {
        "is_correction_enable": True,
        "is_correction_threshold": [0.7, 1.4],
        "is_correction_type": "icepop",
    }


def loss_of_the_trainer() -> Any:
    actor = {
        **{"eps_clip_low_high": [0.1, 0.15], "dual_clip": 3.0, "aux_loss_coef": 0.0},
        **{"policy_loss_type": "ppo", "loss_agg_mode": "token-mean"},
    }
    groups = {
        "actor": SimpleNamespace(**actor),
        "algo": SimpleNamespace(advantage=SimpleNamespace(**correction())),
        "train": SimpleNamespace(
            max_epochs=1, dynamic_batch_enable=False, colocate_all=False, async_enable=False
        ),
        "ds": SimpleNamespace(packing_samples=False),
        "vllm": SimpleNamespace(sync_backend="nccl"),
    }
    strategy = SimpleNamespace(args=SimpleNamespace(**groups))
    return ppo_actor.ActorPPOTrainer(strategy, None, None, None, None).actor_loss_fn


def answer(function: Any, batch: random_batches.Batch) -> tuple[Any, ...]:
    current = batch.current.clone().requires_grad_()
    value, *others = function(
        current,
        batch.old,
        batch.advantages,
        action_mask=batch.mask,
        rollout_log_probs=batch.rollout,
        dp_size=2,
        batch_num_tokens=301,
        global_batch_size=24,
    )
    value.backward()
    return value.detach(), current.grad, others


def test_the_trainers_loss() -> None:
    theirs = loss_of_the_trainer()
    assert type(theirs) is ORIGINAL
    install()
    install()
    ours = loss_of_the_trainer()
    assert type(ours) is PolicyLoss
    assert head.PolicyLoss is PolicyLoss
    batch = random_batches.make(61)
    called, exact = answer(theirs, batch), answer(theirs, in_float64(batch))
    actual = answer(ours, batch)
    same_loss(actual[0], called[0], exact[0])
    same_gradient(actual[1], called[1], exact[1], batch.mask)
    for mine, original in zip(actual[2], exact[2], strict=True):
        torch.testing.assert_close(mine.double(), original.double(), rtol=2e-5, atol=2e-6)


def test_a_wrong_setting_leaves_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_RUN", "my run")
    with pytest.raises(ValueError, match=r"^COUNTERWEIGHT_RUN must match"):
        install()
    assert head.PolicyLoss is ORIGINAL
