"""``counterweight_rl.hooks.skyrl`` in SkyRL's own registry, against SkyRL's own losses.

Ray is a stand-in, so the registry stays in this process; pickle shows what reaches its workers.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import random_batches
import torch
from comparison import in_float64, same_gradient, same_metrics
from counterweight_rl.hooks._skyrl_losses import NAMES
from skyrl.backends.skyrl_train.utils import ppo_utils
from skyrl.train.config.config import AlgorithmConfig, OffPolicyCorrectionConfig

pytestmark = [
    pytest.mark.compares("hooks.skyrl"),
    pytest.mark.filterwarnings("ignore:method.dialect"),
]

CORRECTIONS: dict[str, dict[str, Any]] = {
    "off": {},
    "token_tis_geometric": {
        "tis_ratio_type": "token",
        "token_tis_ratio_clip_high": 1.3,
        "sequence_mask_metric": "geometric",
        "geo_mask_low": 0.9,
        "geo_mask_high": 1.1,
    },
    "sequence_tis_outlier": {
        "tis_ratio_type": "sequence",
        "sequence_tis_ratio_clip_high": 1.8,
        "outlier_token_is_threshold_low": 0.2,
        "outlier_token_is_threshold_high": 5.0,
    },
}


@pytest.fixture(scope="module", autouse=True)
def hook(service: None) -> Any:
    return importlib.import_module("counterweight_rl.hooks.skyrl")


LOSSES = [name for name in NAMES if name != "importance_sampling"]


def answer(
    name: str, batch: random_batches.Batch, config: AlgorithmConfig, rollout: bool = True
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Returns loss, gradient and metrics, as SkyRL's worker calls a registered loss."""
    current = batch.current.clone().requires_grad_()
    # The trainer has divided the advantages by the tokens.
    advantages = batch.advantages / batch.mask.sum()
    loss, metrics = ppo_utils.PolicyLossRegistry.get(name)(
        current,
        batch.old,
        advantages,
        config=config,
        loss_mask=batch.mask,
        rollout_logprobs=batch.rollout if rollout else None,
    )
    loss.backward()
    assert current.grad is not None
    return loss.detach(), current.grad, metrics


def compare(
    name: str, config: AlgorithmConfig, seed: int, rollout: bool = True, kept: str = "rows"
) -> None:
    batch = random_batches.make(seed, kept=kept)
    called = answer(name, batch, config, rollout)
    exact = answer(name, in_float64(batch), config, rollout)
    actual = answer("counterweight_" + name, batch, config, rollout)
    # Positive and negative terms cancel out, and the sum has their rounding.
    terms = (exact[1].abs().sum()).item()
    assert actual[0].item() == pytest.approx(exact[0].item(), rel=2e-5, abs=1e-6 * terms)
    assert actual[0].dtype == called[0].dtype
    same_gradient(actual[1], called[1], exact[1], batch.mask)
    assert list(actual[2]) == list(called[2])  # SkyRL reduces them over ranks in this order
    same_metrics(actual[2], called[2], exact[2])


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_loss(loss: str, correction: str) -> None:
    config = AlgorithmConfig(
        policy_loss_type=loss,
        eps_clip_low=0.1,
        eps_clip_high=0.15,
        off_policy_correction=OffPolicyCorrectionConfig(**CORRECTIONS[correction]),
        loss_reduction="sequence_mean",  # gspo and sapo recommend it
    )
    compare(loss, config, seed=51)


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_without_a_token(loss: str) -> None:
    compare(loss, AlgorithmConfig(policy_loss_type=loss), seed=53, kept="empty_row")


@pytest.mark.parametrize("loss", ["regular", "importance_sampling", "dppo"])
def test_without_rollout_log_probs(loss: str) -> None:
    compare(loss, AlgorithmConfig(policy_loss_type=loss), seed=52, rollout=False)


def test_registered_once_and_beside_skyrls_own(hook: Any) -> None:
    names = ppo_utils.PolicyLossRegistry.list_available()
    hook.install()
    ppo_utils.PolicyLossRegistry.repopulate_registry()
    assert ppo_utils.PolicyLossRegistry.list_available() == names
    assert {"regular", "counterweight_regular", "clip_cov"} <= set(names)
    assert "counterweight_clip_cov" not in names


def test_a_worker_needs_no_registration() -> None:
    loss: Callable[..., Any] = ppo_utils.PolicyLossRegistry.get("counterweight_gspo")
    program = (
        "import pickle, sys; loss = pickle.load(sys.stdin.buffer); "
        "print(loss.args, 'counterweight_rl.hooks.skyrl' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(loss),
        env={**os.environ, "COUNTERWEIGHT_TARGET": "localhost:1"},
        capture_output=True,
        timeout=300,
    )
    assert done.stdout.split() == [b"('gspo',)", b"False"], done.stderr.decode()
