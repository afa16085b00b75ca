"""``counterweight_rl.hooks.verl`` in the installed release of verl.

verl imports the hook by its own function, and its own worker loss and its own classes use what the
hook registered; ray is a stand-in, and no trainer runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import random_batches
import releases
import torch
from comparison import in_float64, same_gradient, same_loss, same_metrics
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.utils.import_utils import import_external_libs
from verl.workers.config.actor import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

ORIGINAL_CORRECTION = rollout_corr_helper.compute_rollout_correction_and_add_to_batch
ORIGINAL_LOSSES = dict(core_algos.POLICY_LOSS_REGISTRY)
NAME = "counterweight_rl.hooks.verl"


@pytest.fixture(scope="module", autouse=True)
def hook(service: None) -> None:
    import_external_libs(NAME)


def actor(**policy_loss: Any) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        loss_agg_mode="token-mean",
        policy_loss=PolicyLossConfig(**policy_loss),
    )


def worker_answer(
    batch: random_batches.Batch, weights: torch.Tensor | None, loss_mode: str
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Returns loss, gradient and metrics of verl's worker; its model saw one prompt token."""
    rows, width = batch.old.shape
    current = batch.current.clone().requires_grad_()
    # Log-probs of a position are the model's output one position before.
    flat = torch.cat([current, current.new_zeros(rows, 1)], dim=1).flatten()
    tensors = {
        "prompts": torch.ones(rows, 1, dtype=torch.int64),
        "responses": torch.ones(rows, width, dtype=torch.int64),
        "attention_mask": torch.ones(rows, width + 1, dtype=torch.int64),
        "response_mask": batch.mask,
        "old_log_probs": batch.old,
        "advantages": batch.advantages,
    }
    if weights is not None:
        tensors["rollout_is_weights"] = weights
    data = TensorDict(tensors, batch_size=[rows])
    for name, value in (("dp_size", 2), ("batch_num_tokens", 301), ("global_batch_size", 24)):
        data.set_non_tensor(name, value)
    loss, metrics = ppo_loss(actor(loss_mode=loss_mode), {"log_probs": flat}, data)
    loss.backward()
    assert current.grad is not None
    numbers = {name: float(metric.values[0]) for name, metric in metrics.items()}
    return loss.detach(), current.grad, numbers


@pytest.mark.compares("hooks.verl: losses")
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("loss", ["vanilla", "gspo", "cispo", "dppo_tv", "sapo"])
def test_loss_of_the_worker(loss: str, weighted: bool) -> None:
    batch = random_batches.make(31)
    weights = (batch.old - batch.rollout).exp().clamp(max=2) if weighted else None
    called = worker_answer(batch, weights, loss)
    exact = worker_answer(in_float64(batch), in_float64(weights), loss)
    actual = worker_answer(batch, weights, "counterweight_" + loss)
    same_loss(actual[0], called[0], exact[0])
    same_gradient(actual[1], called[1], exact[1], batch.mask)
    same_metrics(actual[2], called[2], exact[2])


@pytest.mark.compares("hooks.verl: losses")
def test_verls_own_losses_stay() -> None:
    registered = core_algos.POLICY_LOSS_REGISTRY
    assert {f"counterweight_{name}" for name in ORIGINAL_LOSSES} <= set(registered)
    changed = {name for name, loss in ORIGINAL_LOSSES.items() if registered[name] is not loss}
    assert changed == {"bypass_mode"}


def data_proto(batch: random_batches.Batch) -> DataProto:
    return DataProto.from_dict(
        tensors={
            "old_log_probs": batch.old,
            "rollout_log_probs": batch.rollout,
            "response_mask": batch.mask,
        }
    )


@pytest.mark.compares("hooks.verl: driver")
@pytest.mark.parametrize("rollout_is", ["token", "sequence", None])
def test_correction_of_the_driver(rollout_is: str | None) -> None:
    config = OmegaConf.create(
        {
            "rollout_is": rollout_is,
            "rollout_is_threshold": 1.4,
            "rollout_rs": "seq_mean_k1",
            "rollout_rs_threshold": "0.9_1.1",
        }
    )
    batch = random_batches.make(32)
    called, metrics = ORIGINAL_CORRECTION(data_proto(batch), config)
    exact, exact_metrics = ORIGINAL_CORRECTION(data_proto(in_float64(batch)), config)
    # The statement of verl's trainers.
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch

    assert compute_rollout_correction_and_add_to_batch is not ORIGINAL_CORRECTION
    actual, actual_metrics = compute_rollout_correction_and_add_to_batch(data_proto(batch), config)
    assert set(actual.batch.keys()) == set(called.batch.keys())
    assert torch.equal(actual.batch["response_mask"], called.batch["response_mask"])
    assert 0 < actual.batch["response_mask"].sum() < batch.mask.sum()
    if rollout_is is not None:
        weights = actual.batch["rollout_is_weights"].double()
        torch.testing.assert_close(weights, exact.batch["rollout_is_weights"], rtol=1e-5, atol=1e-8)
    same_metrics(actual_metrics, metrics, exact_metrics)


@pytest.mark.compares("hooks.verl: bypass mode")
@pytest.mark.parametrize("loss_type", ["ppo_clip", "reinforce"])
def test_bypass_mode(loss_type: str) -> None:
    correction = {"bypass_mode": True, "loss_type": loss_type, "rollout_is": "token"}
    correction["rollout_is_threshold"] = 1.3
    config = OmegaConf.create({"policy_loss": {"loss_mode": "vanilla"}})
    batch = random_batches.make(33)
    rollout_corr_helper.apply_bypass_mode(
        data_proto(batch), OmegaConf.create(correction), config.policy_loss
    )
    loss_mode = config.policy_loss.loss_mode

    def answer(function: Any, batch: random_batches.Batch) -> tuple[Any, ...]:
        current = batch.current.clone().requires_grad_()
        with_correction = actor(loss_mode=loss_mode, rollout_correction=correction)
        loss, metrics = function(
            batch.rollout, current, batch.advantages, batch.mask, "token-mean", with_correction
        )
        loss.backward()
        return loss.detach(), current.grad, metrics

    called = answer(ORIGINAL_LOSSES[loss_mode], batch)
    exact = answer(ORIGINAL_LOSSES[loss_mode], in_float64(batch))
    actual = answer(core_algos.get_policy_loss_fn(loss_mode), batch)
    assert core_algos.get_policy_loss_fn(loss_mode) is not ORIGINAL_LOSSES[loss_mode]
    same_loss(actual[0], called[0], exact[0])
    same_gradient(actual[1], called[1], exact[1], batch.mask)
    same_metrics(actual[2], called[2], exact[2])


def import_verl(**environment: str) -> subprocess.CompletedProcess[str]:
    """Lets ``import verl`` import the hook, as a worker's environment does."""
    program = (
        "import releases; releases.activate_release(); import verl; "
        "from verl.trainer.ppo import rollout_corr_helper as helper; "
        "print(helper.compute_rollout_correction_and_add_to_batch.__module__)"
    )
    return run_python(program, VERL_USE_EXTERNAL_MODULES=NAME, **environment)


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, **environment},
        cwd=os.path.dirname(releases.__file__),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.compares("hooks.verl: import")
def test_import_by_environment() -> None:
    done = import_verl()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "counterweight_rl.compat.verl"


@pytest.mark.compares("hooks.verl: import")
def test_import_by_the_models_configuration() -> None:
    """verl's HFModelConfig, which driver and workers make, imports it before it reads the model."""
    program = (
        "import releases; releases.activate_release(); "
        "from verl.workers.config import HFModelConfig; "
        f"HFModelConfig(path='/there/is/none', external_lib={NAME!r})"
    )
    done = run_python(program, COUNTERWEIGHT_TIMEOUT="soon")
    assert done.returncode != 0
    assert "COUNTERWEIGHT_TIMEOUT must be" in done.stderr.strip().splitlines()[-1]


@pytest.mark.compares("hooks.verl: import")
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"COUNTERWEIGHT_TIMEOUT": "soon"},
            "COUNTERWEIGHT_TIMEOUT must be a number of seconds; got 'soon'",
        ),
        (
            {"COUNTERWEIGHT_TARGET": "localhost:1", "COUNTERWEIGHT_RETRY_SECONDS": "0"},
            "UnavailableError: no server answers at localhost:1, the target of COUNTERWEIGHT_TARGET",
        ),
    ],
    ids=["setting", "server"],
)
def test_a_wrong_setting_ends_the_import(environment: dict[str, str], message: str) -> None:
    done = import_verl(**environment)
    assert done.returncode != 0
    assert message in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("grpo", core_algos.compute_grpo_outcome_advantage),
        ("rloo", core_algos.compute_rloo_outcome_advantage),
        (
            "reinforce_plus_plus_baseline",
            core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage,
        ),
    ],
)
def test_without_rejection_advantages_are_verls(name: str, own: Any) -> None:
    torch.manual_seed(5)
    rewards = torch.zeros(12, 6).index_fill_(1, torch.tensor([5]), 1.0) * torch.randn(12, 1)
    mask = (torch.arange(6) < torch.randint(1, 7, (12, 1))).long()
    index = np.array([f"uid-{i % 3}" for i in range(12)], dtype=object)
    given = {"token_level_rewards": rewards, "response_mask": mask, "index": index}
    estimator = core_algos.get_adv_estimator_fn(f"counterweight_{name}")
    made = estimator(**given, config=None)
    for ours, theirs in zip(made, own(**given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
