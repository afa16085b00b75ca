"""Hooks in modules that replace the frameworks; tests/peers has the real ones."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_service import KEEP, answers, roles, tensors
from fake_server import FakeServer
from google.protobuf import json_format
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Request, Response, sent

import counterweight_rl as cw
from counterweight_rl import compat
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.compat import _service

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import _megatron_blocks  # noqa: E402
from counterweight_rl.hooks import _drift, slime  # noqa: E402

VERL_HELPER = "verl.trainer.ppo.rollout_corr_helper"
CORRECTION = "compute_rollout_correction_and_add_to_batch"


def sized_answers(metrics: dict[str, float]) -> Callable[[Request, Any], Response]:
    """Returns a handler that also answers the two tokens with which a hook tries its method."""
    handler = answers(metrics)

    def sized(request: Request, context: Any) -> Response:
        response = handler(request, context)
        if "RESPONSE_MASK" in roles(request) and request_tokens(request) == 2:
            for tensor in response.tensors:
                tensor.data = tensor.data[: 2 * len(tensor.data) // OLD.size]
        return response

    return sized


def request_tokens(request: Request) -> int:
    mask = tensor_pb2.TENSOR_ROLE_RESPONSE_MASK
    return next(len(tensor.data) for tensor in request.tensors if tensor.role == mask)


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Makes a module that ``import`` finds; hooks are forgotten afterwards."""

    def make(name: str, **names: Any) -> ModuleType:
        parts = name.split(".")
        for length in range(1, len(parts)):
            parent = ".".join(parts[:length])
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    yield make
    for name in ("verl", "openrlhf", "skyrl"):
        sys.modules.pop(f"counterweight_rl.hooks.{name}", None)


def test_verl(service: FakeServer, framework: Callable[..., ModuleType]) -> None:
    registry: dict[str, Any] = {"vanilla": "verl's", "bypass_mode": "verl's"}

    def register_policy_loss(name: str) -> Callable[[Any], Any]:
        return functools.partial(registry.__setitem__, name)

    estimators: dict[str, Any] = {"grpo": "verl's"}

    def register_adv_est(name: str) -> Callable[[Any], Any]:
        return functools.partial(estimators.__setitem__, name)

    framework(
        "verl.trainer.ppo.core_algos",
        register_policy_loss=register_policy_loss,
        register_adv_est=register_adv_est,
    )
    helper = framework(VERL_HELPER, **{CORRECTION: object()})
    # A trainer that was imported before the hook.
    trainer = framework("verl.trainer.ppo.ray", **{CORRECTION: getattr(helper, CORRECTION)})
    hook = importlib.import_module("counterweight_rl.hooks.verl")
    ours = compat.verl
    assert registry["vanilla"] == "verl's"
    assert registry["counterweight_vanilla"] is ours.compute_policy_loss_vanilla
    assert registry["bypass_mode"] is ours.compute_policy_loss_bypass_mode
    for module in (helper, trainer):
        assert getattr(module, CORRECTION) is ours.compute_rollout_correction_and_add_to_batch
    hook.install()
    assert len(registry) == 2 + len(ours.POLICY_LOSS_REGISTRY)
    assert estimators.pop("grpo") == "verl's"
    names = ("grpo", "grpo_without_std", "reinforce_plus_plus_baseline", "rloo")
    assert sorted(estimators) == [f"counterweight_{name}" for name in names]


def test_a_hook_without_its_framework(service: FakeServer) -> None:
    with pytest.raises(ImportError, match="verl is not installed: pip install verl"):
        importlib.import_module("counterweight_rl.hooks.verl")


def test_a_hook_without_a_server(
    framework: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    openrlhf = framework("openrlhf.models", PolicyLoss="OpenRLHF's")
    hook = importlib.import_module("counterweight_rl.hooks.openrlhf")
    compat.use()
    monkeypatch.setenv("COUNTERWEIGHT_TARGET", "localhost:1")
    monkeypatch.setenv("COUNTERWEIGHT_RETRY_SECONDS", "0")
    with pytest.raises(cw.UnavailableError, match=r"^no server answers at localhost:1"):
        hook.install()
    assert openrlhf.PolicyLoss == "OpenRLHF's"


def test_openrlhf(service: FakeServer, framework: Callable[..., ModuleType]) -> None:
    original = object()
    openrlhf = framework("openrlhf.models", PolicyLoss=original)
    trainer = framework("openrlhf.trainer.ray.ppo_actor", PolicyLoss=original)
    hook = importlib.import_module("counterweight_rl.hooks.openrlhf")
    hook.install()
    assert openrlhf.PolicyLoss is trainer.PolicyLoss is compat.openrlhf.PolicyLoss


def test_skyrl(service: FakeServer, framework: Callable[..., ModuleType]) -> None:
    registered: dict[str, Any] = {}
    registry = SimpleNamespace(
        list_available=lambda: list(registered), register=registered.__setitem__
    )
    framework("skyrl.backends.skyrl_train.utils.ppo_utils", PolicyLossRegistry=registry)
    importlib.import_module("counterweight_rl.hooks.skyrl").install()
    loss = pickle.loads(pickle.dumps(registered["counterweight_gspo"]))
    service.handler = answers({"clip_ratio": 0.25})
    current, old, advantages, mask = tensors(OLD, OLD, OLD, MASK)
    value, metrics = loss(current.requires_grad_(), old, advantages, SimpleNamespace(), mask)
    assert value.item() == 1.5 * len(OLD)  # the sum over rows of a mean
    assert metrics == {"clip_ratio": 0.25}


def micro_batch() -> dict[str, Any]:
    """Returns the rows of the sample, as slime gives them: lists of tensors."""
    return {
        "train_log_probs": tensors(*OLD),
        "rollout_log_probs": tensors(*ROLLOUT),
        "loss_masks": tensors(*MASK.astype(np.int64)),
        "total_lengths": [4, 4],
        "response_lengths": [3, 3],
    }


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slime, "_started", None)


def test_slime(service: FakeServer, not_started: None) -> None:
    # The drift is of the inputs, because a dialect's metrics have other names.
    service.handler = sized_answers({"rollout_corr/kl": 0.5})
    args = SimpleNamespace(tis_clip=2.0, tis_clip_low=0.0, counterweight_method="token_tis")
    pg_loss = torch.arange(6.0, requires_grad=True)
    loss, masks, metrics = slime.correct(args, pg_loss=pg_loss, **micro_batch())
    np.testing.assert_array_equal(loss.detach().numpy(), np.arange(6) * WEIGHTS.ravel())
    loss.sum().backward()
    np.testing.assert_array_equal(pg_loss.grad.numpy(), WEIGHTS.ravel())
    np.testing.assert_array_equal(np.stack([mask.numpy() for mask in masks]), KEEP)
    assert {mask.dtype for mask in masks} == {torch.int64}
    np.testing.assert_array_equal(metrics["counterweight_dropped"], (KEEP != MASK).ravel())
    ratio = np.where(MASK == 1, OLD - ROLLOUT, 0).ravel()
    np.testing.assert_allclose(metrics["counterweight_kl"], -ratio)
    np.testing.assert_allclose(metrics["counterweight_k3"], np.expm1(ratio) - ratio, rtol=1e-5)
    tokens = [request_tokens(request) for request in service.requests]
    assert tokens == [2, 6]  # the trial of the method, and the batch


def test_drift_of_halves_is_computed_in_float32() -> None:
    old, rollout = torch.tensor([-1.0, -300.0, -2.0]), torch.tensor([-1.0, -299.0, -1.0])
    mask = torch.tensor([1, 1, 0])
    halves = _drift.of_tokens(old.bfloat16() / 3, rollout.bfloat16() / 3, mask)
    wide = _drift.of_tokens(
        (old.bfloat16() / 3).double(), (rollout.bfloat16() / 3).double(), mask.bool()
    )
    for name, values in halves.items():
        assert values.dtype == torch.float32
        assert torch.equal(values, wide[name])
    infinite = _drift.of_tokens(torch.tensor([float("-inf"), -1.0]), -torch.ones(2), torch.ones(2))
    assert infinite["kl"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("given", "block"),
    [
        ({}, {"use_tis": True, "tis_clip": 2.0}),
        ({"tis_clip_low": 0.5}, {"use_tis": True, "tis_clip": 2.0, "tis_clip_low": 0.5}),
        # Arguments of other code, and those of the trainer's own loss, are not sent.
        ({"eps_clip": 0.2, "use_tis": False, "tis_x": 1}, {"use_tis": True, "tis_clip": 2.0}),
        (
            {"tis_mode": "mask", "rs_veto_threshold": 1e-4, "use_tis": False},
            {
                "use_tis": False,
                **dict.fromkeys(_megatron_blocks._MIS_NAMES),
                **{"tis_mode": "mask", "rs_veto_threshold": 1e-4},
                "custom_tis_function_path": "examples.train_infer_mismatch_helper.mis"
                ".compute_mis_weights_with_cp",
            },
        ),
    ],
)
def test_slime_without_a_method_sends_its_own_arguments(
    service: FakeServer, not_started: None, given: dict[str, Any], block: dict[str, Any]
) -> None:
    service.handler = sized_answers({})
    slime.start(SimpleNamespace(tis_clip=2.0, **given))
    dialect = service.requests[0].method.dialect
    assert (dialect.system, json_format.MessageToDict(dialect.block)) == ("slime", block)


def test_slime_refuses_parts_of_samples(service: FakeServer, not_started: None) -> None:
    service.handler = sized_answers({})
    args = SimpleNamespace(tis_clip=2.0)
    with pytest.raises(ValueError, match="set --context-parallel-size 1"):
        slime.correct(args, pg_loss=torch.zeros(5), **micro_batch())


def test_slime_starts_once_in_each_process(
    service: FakeServer, not_started: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.handler = sized_answers({})
    args = SimpleNamespace(tis_clip=2.0)
    for _ in range(2):
        slime.correct(args, pg_loss=torch.zeros(6), **micro_batch())
    assert len(service.requests) == 3
    monkeypatch.setattr(os, "getpid", lambda: -1)
    slime.correct(args, pg_loss=torch.zeros(6), **micro_batch())
    assert len(service.requests) == 5


class Trainer:
    """The parts of GRPOTrainer that the mixin uses."""

    vllm_importance_sampling_correction = True
    use_vllm = True

    def __init__(self) -> None:
        self.model = SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(gather=lambda tensor: tensor.reshape(1))
        self._metrics: Any = {"train": defaultdict(list)}

    def _generate_and_score_completions(self, _: Any) -> dict[str, Any]:
        old, rollout, mask = tensors(OLD, ROLLOUT, np.ones_like(MASK, np.int64))
        return {
            "completion_mask": mask,
            "tool_mask": tensors(MASK.astype(np.int64))[0],
            "old_per_token_logps": old,
            "sampling_per_token_logps": rollout,
            "importance_sampling_ratio": None,
        }


def test_trl(service: FakeServer) -> None:
    from counterweight_rl.hooks.trl import CorrectionMixin

    class Ours(CorrectionMixin, Trainer):
        counterweight_method = "token_tis"

    service.handler = sized_answers({"kl": 0.5})
    trainer = Ours()
    ratio = trainer._generate_and_score_completions(None)["importance_sampling_ratio"]
    expected = np.where(MASK == 1, WEIGHTS * KEEP, 1)  # VESPO adds logarithms of all slots
    np.testing.assert_array_equal(ratio.numpy(), expected)
    assert trainer._metrics["train"] == {"counterweight/kl": [0.5]}
    trainer.use_vllm = False
    with pytest.raises(ValueError, match="needs use_vllm=True"):
        trainer._generate_and_score_completions(None)


def test_samples_without_tokens_are_left_out(service: FakeServer) -> None:
    """Six samples of six tokens: their advantages, one per token, might be one per sample."""
    flat = {
        "old_log_probs": torch.from_numpy(OLD).reshape(-1),
        "rollout_log_probs": torch.from_numpy(ROLLOUT).reshape(-1),
        "advantages": torch.arange(6.0),
        "response_mask": torch.from_numpy(MASK).reshape(-1),
    }
    divisors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    _service.ask("ppo_clip", sequence_lengths=[2, 0, 4, 0, 0, 0], row_divisors=divisors, **flat)
    (request,) = service.requests
    assert list(request.layout.packed.sequence_lengths) == [2, 4]
    assert list(request.row_divisors) == [1.0, 3.0]
    advantages = sent(request, tensor_pb2.TENSOR_ROLE_ADVANTAGES)
    assert np.frombuffer(advantages.data, "<f4").tolist() == flat["advantages"].tolist()
