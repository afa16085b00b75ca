"""What the other systems' functions ask for, and what they make of the answer."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from google.protobuf import json_format
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Request, Response, sent

import counterweight as cw
from counterweight._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight import compat  # noqa: E402
from counterweight.compat import openrlhf, skyrl, trl, verl  # noqa: E402

GRADIENT = np.array([[0.5, -2.0, 0], [0.25, 0, 0]], "<f4")
KEEP = np.array([[1, 0, 0], [1, 0, 0]], np.uint8)
OUTPUTS = {
    tensor_pb2.TENSOR_ROLE_WEIGHTS: ("D_TYPE_F32", WEIGHTS),
    tensor_pb2.TENSOR_ROLE_KEEP_MASK: ("D_TYPE_U8", KEEP),
    tensor_pb2.TENSOR_ROLE_GRADIENT: ("D_TYPE_F32", GRADIENT),
}
METRICS = {
    "actor/ppo_kl": 0.5,
    "rollout_corr/kl": 0.25,
    "training/other": 1.0,
    "ppo_clip_ratio": 0.125,
    "ppo_kl": -0.5,
}


@pytest.fixture(autouse=True)
def service(server: FakeServer, client: cw.Client) -> Iterator[FakeServer]:
    """Answers what is asked for, METRICS, and a loss of 1.5."""

    def handler(request: Request, _: Any) -> Response:
        response = Response(metrics=METRICS)
        weights_and_mask = list(OUTPUTS)[:2]
        for role in request.outputs or weights_and_mask:
            dtype, array = OUTPUTS[role]
            name = tensor_pb2.TensorRole.Name(role)
            response.tensors.add(role=name, dtype=dtype, data=array.tobytes())
        if request.compute_loss:
            response.loss = 1.5
        return response

    server.handler = handler
    compat.use(client, run="my-run")
    yield server
    compat.use(None)


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(array.copy()) for array in arrays]


def block(request: Request) -> Any:
    return json_format.MessageToDict(request.method.dialect.block)


def roles(request: Request) -> set[str]:
    return {
        tensor_pb2.TensorRole.Name(t.role).removeprefix("TENSOR_ROLE_") for t in request.tensors
    }


# The client in use.


def test_run_is_the_label(service: FakeServer) -> None:
    verl.compute_rollout_correction_and_rejection_mask(*tensors(OLD, ROLLOUT, MASK))
    assert service.requests[0].labels.run == "my-run"


def test_without_a_client_the_environment_says_where(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat.use(None)
    monkeypatch.setenv("COUNTERWEIGHT_TARGET", service.target)
    monkeypatch.setattr("counterweight.compat._service._default", None)
    verl.compute_rollout_correction_and_rejection_mask(*tensors(OLD, ROLLOUT, MASK))
    assert service.requests[0].labels.run == ""
    made = compat.client()
    assert compat.client() is made
    # After fork() the channel is the parent's.
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert compat.client() is not made
    compat.client().close()
    made.close()


def test_the_servers_warnings_are_pythons(service: FakeServer) -> None:
    inner = service.handler

    def warned(request: Request, context: Any) -> Response:
        response = inner(request, context)
        response.warnings.append("beware of k1")
        return response

    service.handler = warned
    with pytest.warns(UserWarning, match="beware of k1"):
        verl.compute_rollout_correction_and_rejection_mask(*tensors(OLD, ROLLOUT, MASK))


# verl.


def test_verl_correction(service: FakeServer) -> None:
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK.astype(bool))
    weights, kept, metrics = verl.compute_rollout_correction_and_rejection_mask(
        old,
        rollout,
        mask,
        "token",
        "0.5_2.0",
        rollout_is_batch_normalize=True,
        rollout_rs="token_k1,seq_max_k2",
        rollout_rs_threshold=2.0,
    )
    (request,) = service.requests
    assert request.method.dialect.system == "verl"
    assert block(request) == {
        "rollout_is": "token",
        "rollout_is_threshold": "0.5_2.0",
        "rollout_is_batch_normalize": True,
        "rollout_rs": "token_k1,seq_max_k2",
        "rollout_rs_threshold": 2.0,
    }
    assert sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data == OLD.tobytes()
    assert sent(request, tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS).data == ROLLOUT.tobytes()
    assert isinstance(weights, verl.WeightsHolder)
    assert torch.equal(weights.batch["rollout_is_weights"], torch.from_numpy(WEIGHTS))
    assert kept.dtype == torch.bool
    np.testing.assert_array_equal(kept.numpy(), KEEP)
    assert metrics == {"rollout_corr/kl": 0.25}


def test_verl_weights_have_verls_dtype() -> None:
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    for log_probs, given_mask, dtype in [
        (torch.bfloat16, torch.int64, torch.bfloat16),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.bool, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ]:
        weights, kept, _ = verl.compute_rollout_correction_and_rejection_mask(
            old.to(log_probs), rollout.to(log_probs), mask.to(given_mask), "token"
        )
        assert weights.batch["rollout_is_weights"].dtype == dtype
        assert kept.dtype == given_mask


class DataProto:
    """As much of verl's as there is to it here."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self.batch = batch

    @classmethod
    def from_dict(cls, tensors: dict[str, Any]) -> DataProto:
        return cls(tensors)

    def union(self, other: DataProto) -> DataProto:
        self.batch.update(other.batch)
        return self


def test_verl_batch(service: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = ModuleType("verl.protocol")
    protocol.DataProto = DataProto  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verl.protocol", protocol)
    names = ("old_log_probs", "rollout_log_probs", "response_mask")
    batch = DataProto(dict(zip(names, tensors(OLD, ROLLOUT, MASK), strict=True)))
    config = {"rollout_is": "sequence", "rollout_rs": None, "bypass_mode": False}
    united, metrics = verl.compute_rollout_correction_and_add_to_batch(batch, config)
    assert united is batch
    assert torch.equal(batch.batch["rollout_is_weights"], torch.from_numpy(WEIGHTS))
    np.testing.assert_array_equal(batch.batch["response_mask"].numpy(), KEEP)
    assert metrics == {"rollout_corr/kl": 0.25}
    assert block(service.requests[0])["rollout_is_threshold"] == 2.0


@dataclass
class ActorConfig:
    """Some of verl's, as a dataclass with a private field."""

    clip_ratio: float = 0.2
    clip_ratio_low: float | None = None
    clip_ratio_c: float = 3.0
    loss_scale_factor: float | None = None
    policy_loss: Any = field(default_factory=lambda: SimpleNamespace(kl_cov_ratio=0.01))
    global_batch_info: dict[str, Any] = field(
        default_factory=lambda: {
            "dp_size": 2,
            "batch_num_tokens": torch.tensor(480),
            "global_batch_size": None,
            "loss_scale_factor": 12.0,
        }
    )
    optim: Any = None
    _target_: str = "verl"


def test_verl_policy_loss(service: FakeServer) -> None:
    old, current, advantages, mask = tensors(OLD, OLD * 2, ROLLOUT, MASK)
    current.requires_grad_()
    compute = verl.get_policy_loss_fn("vanilla")
    loss, metrics = compute(
        old_log_prob=old,
        log_prob=current,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode="seq-mean-token-mean",
        config=ActorConfig(),
        rollout_is_weights=torch.from_numpy(WEIGHTS),
    )
    loss.backward()
    np.testing.assert_array_equal(current.grad.numpy(), GRADIENT)
    assert loss.item() == 1.5
    assert metrics == {"actor/ppo_kl": 0.5}
    (request,) = service.requests
    assert block(request) == {
        "policy_loss": {
            "loss_mode": "vanilla",
            "loss_agg_mode": "seq-mean-token-mean",
            "clip_ratio": 0.2,
            "clip_ratio_low": None,
            "clip_ratio_c": 3.0,
            "loss_scale_factor": 12.0,
            "kl_cov_ratio": 0.01,
            "global_batch_info": {
                "dp_size": 2.0,
                "batch_num_tokens": 480.0,
                "global_batch_size": None,
            },
        }
    }
    assert roles(request) == {"OLD_LOG_PROBS", "CURRENT_LOG_PROBS", "ADVANTAGES", "RESPONSE_MASK"}
    weighted = sent(request, tensor_pb2.TENSOR_ROLE_ADVANTAGES).data
    assert weighted == (ROLLOUT * WEIGHTS).tobytes()


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov", "geo_mean", "dro"])
def test_verl_weights_that_cannot_travel_are_refused(service: FakeServer, name: str) -> None:
    old, current, advantages, mask = tensors(OLD, OLD * 2, ROLLOUT, MASK)
    compute = verl.get_policy_loss_fn(name)
    with pytest.raises(cw.InvalidRequestError, match="not proportional") as caught:
        compute(old, current, advantages, mask, rollout_is_weights=torch.from_numpy(WEIGHTS))
    assert caught.value.violations[0].field == "rollout_is_weights"
    assert service.requests == []
    compute(old, current, advantages, mask)
    assert block(service.requests[0])["policy_loss"]["loss_mode"] == name


def test_verl_bypass_mode(service: FakeServer) -> None:
    rollout, current, advantages, mask = tensors(ROLLOUT, OLD, ROLLOUT, MASK)
    correction = {"rollout_is": "token", "loss_type": "reinforce", "rollout_is_threshold": 3.0}
    config = {"policy_loss": {"rollout_correction": correction, "loss_mode": "bypass_mode"}}
    compute = verl.get_policy_loss_fn("bypass_mode")
    # The incoming weights are not read.
    _, metrics = compute(rollout, current, advantages, mask, "token-sum", config, current)
    assert metrics == {"actor/ppo_kl": 0.5, "rollout_corr/kl": 0.25}
    (request,) = service.requests
    assert block(request) == {
        **correction,
        "bypass_mode": True,
        "policy_loss": {
            "loss_mode": "bypass_mode",
            "loss_agg_mode": "token-sum",
            "global_batch_info": {},
        },
    }
    assert sent(request, tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS).data == ROLLOUT.tobytes()
    assert sent(request, tensor_pb2.TENSOR_ROLE_ADVANTAGES).data == ROLLOUT.tobytes()
    with pytest.raises(ValueError, match="rollout_correction"):
        compute(rollout, current, advantages, mask, config=ActorConfig())


def test_verl_reinforce(service: FakeServer) -> None:
    rollout, current, advantages, mask = tensors(ROLLOUT, OLD, ROLLOUT, MASK)
    verl.compute_policy_loss_reinforce(rollout, current, advantages, mask)
    assert block(service.requests[0]) == {
        "bypass_mode": True,
        "policy_loss": {
            "loss_mode": "reinforce",
            "loss_agg_mode": "seq-mean-token-sum",
            "global_batch_info": {},
        },
    }


def test_verl_names() -> None:
    with pytest.raises(ValueError, match="Unsupported loss mode: ppo"):
        verl.get_policy_loss_fn("ppo")
    assert verl.compute_policy_loss_gspo.__name__ == "compute_policy_loss_gspo"
    for compute in verl.POLICY_LOSS_REGISTRY.values():
        assert list(inspect.signature(compute).parameters) == [
            "old_log_prob",
            "log_prob",
            "advantages",
            "response_mask",
            "loss_agg_mode",
            "config",
            "rollout_is_weights",
        ]


# SkyRL.


def test_skyrl_correction(service: FakeServer) -> None:
    loss, old, rollout, mask = tensors(OLD * 5, OLD, ROLLOUT, MASK.astype(np.float32))
    loss.requires_grad_()
    config = SimpleNamespace(tis_ratio_type="token", token_tis_ratio_clip_high=2.0)
    corrected, kept, metrics = skyrl.apply_off_policy_correction(loss, old, rollout, mask, config)
    np.testing.assert_array_equal(corrected.detach().numpy(), OLD * 5 * WEIGHTS)
    corrected.sum().backward()
    np.testing.assert_array_equal(loss.grad.numpy(), WEIGHTS)
    assert kept.dtype == torch.float32
    np.testing.assert_array_equal(kept.numpy(), KEEP)
    assert metrics == METRICS
    assert block(service.requests[0]) == {
        "off_policy_correction": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}
    }


def test_skyrl_without_rollout_or_weights(service: FakeServer) -> None:
    loss, old, mask = tensors(OLD * 5, OLD, MASK)
    assert skyrl.apply_off_policy_correction(loss, old, None, mask, {}) == (loss, mask, {})
    assert service.requests == []
    service.handler = lambda request, _: Response(
        tensors=[
            tensor_pb2.Tensor(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=KEEP.tobytes())
        ]
    )
    same, kept, metrics = skyrl.apply_off_policy_correction(loss, old, old, mask, {})
    assert same is loss
    np.testing.assert_array_equal(kept.numpy(), KEEP)
    assert metrics == {}
    with pytest.raises(TypeError, match="cannot read a configuration out of a NoneType"):
        skyrl.apply_off_policy_correction(loss, old, old, mask, None)


# TRL.


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # 1 where the mask is 0.
        ("token_truncate", [[1, 2, 1], [0.5, 1, 1], [1, 1, 1]]),
        # The row's, from its first token that counts; 1 in a row without one.
        ("sequence_mask", [[1], [0.5], [1]]),
        ("sequence_geometric_mean_mask", [[1], [0.5], [1]]),
    ],
)
def test_trl_ratio(service: FakeServer, mode: str, expected: list[list[float]]) -> None:
    weights = np.array([[1, 2, 0], [0.5, 0, 0], [0, 0, 0]], "<f4")
    mask = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    if mode.startswith("sequence"):
        mask, weights = mask[:, ::-1], np.array([[0, 1, 1], [0, 0, 0.5], [0, 0, 0]], "<f4")
    service.handler = lambda request, _: Response(
        metrics={"sampling/x": 1.0},
        tensors=[
            tensor_pb2.Tensor(
                role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=weights.tobytes()
            )
        ],
    )
    log_probs = torch.zeros(3, 3)
    ratio, metrics = trl.vllm_importance_sampling_ratio(
        log_probs,
        log_probs,
        torch.from_numpy(mask.copy()),
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_max=None,
        vllm_importance_sampling_clip_min=0.25,
    )
    assert ratio.tolist() == expected
    assert metrics == {"sampling/x": 1.0}
    assert block(service.requests[0]) == {
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_max": None,
        "vllm_importance_sampling_clip_min": 0.25,
    }


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_trl_off_policy_mask(service: FakeServer, dtype: Any) -> None:
    current, rollout = tensors(OLD, ROLLOUT)
    mask = torch.from_numpy(MASK).to(dtype)
    # The server drops (0, 1) only; MASK is 0 at (0, 2), (1, 1) and (1, 2).
    keep = trl.get_off_policy_mask(
        advantages=torch.ones(2, 3),
        per_token_logps=current,
        sampling_per_token_logps=rollout,
        mask=mask,
        off_policy_threshold=0.5,
    )
    assert keep.dtype == dtype
    assert keep.int().tolist() == [[1, 0, 1], [1, 1, 1]]
    rows = trl.get_off_policy_mask(torch.ones(2, 1), current, rollout, mask, 0.5)
    assert rows.int().tolist() == [[1], [1]]
    for request in service.requests:
        assert block(request) == {
            "vllm_importance_sampling_correction": False,
            "off_policy_mask_threshold": 0.5,
        }
        assert roles(request) == {
            "CURRENT_LOG_PROBS",
            "ROLLOUT_LOG_PROBS",
            "ADVANTAGES",
            "RESPONSE_MASK",
        }
        assert list(request.outputs) == [tensor_pb2.TENSOR_ROLE_KEEP_MASK]
        assert not request.compute_loss


def test_trl_without_columns(service: FakeServer) -> None:
    service.handler = lambda request, _: Response(
        tensors=[tensor_pb2.Tensor(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8")]
    )
    empty = torch.zeros(2, 0)
    keep = trl.get_off_policy_mask(torch.ones(2, 1), empty, empty, empty.long(), 0.5)
    assert keep.tolist() == [[1], [1]]


# OpenRLHF.


def test_openrlhf_policy_loss(service: FakeServer) -> None:
    current, old, advantages = tensors(OLD * 2, OLD, ROLLOUT)
    current.requires_grad_()
    module = openrlhf.PolicyLoss(0.1, clip_eps_high=0.3, dual_clip=2.0)
    assert isinstance(module, torch.nn.Module)
    loss, clip_ratio, ppo_kl, vllm_kl = module(current, old, advantages)
    loss.backward()
    np.testing.assert_array_equal(current.grad.numpy(), GRADIENT)
    assert (loss.item(), clip_ratio.item(), ppo_kl.item(), vllm_kl) == (1.5, 0.125, -0.5, None)
    assert clip_ratio.shape == ppo_kl.shape == ()
    (request,) = service.requests
    assert block(request) == {
        "eps_clip_low_high": [0.1, 0.3],
        "dual_clip": 2.0,
        "token_level_loss": True,
        "policy_loss_type": "ppo",
        "enable_vllm_is_correction": False,
        "vllm_is_correction_type": "tis",
        "dp_size": 1.0,
    }
    assert sent(request, tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data == b"\x01" * 6


def test_openrlhf_correction_and_counts(service: FakeServer) -> None:
    inner = service.handler

    def with_vllm_kl(request: Request, context: Any) -> Response:
        response = inner(request, context)
        response.metrics["vllm_kl"] = 0.75
        return response

    service.handler = with_vllm_kl
    current, old, advantages, mask, rollout = tensors(OLD * 2, OLD, ROLLOUT, MASK, ROLLOUT)
    module = openrlhf.PolicyLoss(
        enable_vllm_is_correction=True,
        vllm_is_truncated_threshold=[0.5, 5.0],
        vllm_is_correction_type="icepop",
    )
    *_, vllm_kl = module(
        current,
        old,
        advantages,
        action_mask=mask,
        rollout_log_probs=rollout,
        dp_size=2,
        batch_num_tokens=torch.tensor(300.0),
        global_batch_size=16,
    )
    assert vllm_kl.item() == 0.75
    sent_block = block(service.requests[0])
    assert sent_block["vllm_is_truncated_threshold"] == [0.5, 5.0]
    assert (sent_block["dp_size"], sent_block["batch_num_tokens"]) == (2.0, 300.0)
    assert sent_block["global_batch_size"] == 16.0
    assert sent(service.requests[0], tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS)


def test_openrlhf_checks_at_once_what_the_original_does() -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        openrlhf.PolicyLoss(dual_clip=1.0, vllm_is_correction_type="mis")
    assert [v.field for v in caught.value.violations] == ["dual_clip", "vllm_is_correction_type"]


def test_openrlhf_names() -> None:
    parameters = inspect.signature(openrlhf.PolicyLoss.__init__).parameters
    assert list(parameters)[1:] == [
        "clip_eps_low",
        "clip_eps_high",
        "dual_clip",
        "token_level_loss",
        "policy_loss_type",
        "enable_vllm_is_correction",
        "vllm_is_truncated_threshold",
        "vllm_is_correction_type",
    ]
    assert list(inspect.signature(openrlhf.PolicyLoss.forward).parameters)[1:] == [
        "log_probs",
        "old_log_probs",
        "advantages",
        "action_mask",
        "rollout_log_probs",
        "dp_size",
        "batch_num_tokens",
        "global_batch_size",
    ]
