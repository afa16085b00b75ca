"""Requests and return values of the functions of compat.verl."""

from __future__ import annotations

import inspect
import pickle
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_service import DTYPES, GRADIENT, KEEP, block, cast_to, roles, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, WEIGHTS, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import _releases, verl  # noqa: E402

pytestmark = pytest.mark.usefixtures("service")


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


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_verl_weights_have_the_dtype_of_verls_formula(dtypes: tuple[str, ...]) -> None:
    old, rollout, mask = cast_to(dtypes)
    holder, kept, _ = verl.compute_rollout_correction_and_rejection_mask(
        old, rollout, mask, "token"
    )
    assert holder.batch["rollout_is_weights"].dtype == ((old - rollout).exp() * mask).dtype
    assert kept.dtype == mask.dtype


class DataProto:
    """The parts of verl's class that the function uses."""

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
    """Some of verl's fields, as a dataclass with a private field."""

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


ACTOR_BLOCK = {
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
            **ACTOR_BLOCK,
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
        compute(
            old,
            current,
            advantages,
            mask,
            config=ActorConfig(),
            rollout_is_weights=torch.from_numpy(WEIGHTS),
        )
    assert caught.value.violations[0].field == "rollout_is_weights"
    assert service.requests == []
    compute(old, current, advantages, mask, config=ActorConfig())
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


def test_verl_bypass_mode_leaves_unset_fields_of_a_newer_verl_out(service: FakeServer) -> None:
    rollout, current, advantages, mask = tensors(ROLLOUT, OLD, ROLLOUT, MASK)
    correction = {"rollout_is": None, "loss_type": "ppo_clip", "next": None, "after": 0.5}
    config = {"policy_loss": {"rollout_correction": correction}}
    verl.compute_policy_loss_bypass_mode(rollout, current, advantages, mask, config=config)
    sent_block = block(service.requests[0])
    del sent_block["policy_loss"]
    # The server refuses unknown fields: here that matters.
    assert sent_block == {
        "rollout_is": None,
        "loss_type": "ppo_clip",
        "after": 0.5,
        "bypass_mode": True,
    }


@pytest.mark.parametrize("name", [*verl.POLICY_LOSS_REGISTRY, "reinforce"])
def test_verl_losses_assert_what_verl_asserts(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    compute = verl.POLICY_LOSS_REGISTRY.get(name, verl.compute_policy_loss_reinforce)
    arguments = tensors(OLD, OLD * 2, ROLLOUT, MASK)
    with pytest.raises(AssertionError, match="config must be an ActorConfig"):
        compute(*arguments)

    class AlgoConfig:
        pass

    module = ModuleType("verl.trainer.config")
    module.AlgoConfig = AlgoConfig  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verl.trainer.config", module)
    with pytest.raises(AssertionError, match="not an AlgoConfig"):
        compute(*arguments, config=AlgoConfig())
    if name in ("clip_cov", "kl_cov", "dro"):
        with pytest.raises(AssertionError, match=r"config\.policy_loss"):
            compute(*arguments, config={"clip_ratio": 0.2})
    assert service.requests == []


def test_verl_reinforce(service: FakeServer) -> None:
    rollout, current, advantages, mask = tensors(ROLLOUT, OLD, ROLLOUT, MASK)
    verl.compute_policy_loss_reinforce(rollout, current, advantages, mask, config=ActorConfig())
    assert block(service.requests[0]) == {
        "bypass_mode": True,
        "policy_loss": {
            "loss_mode": "reinforce",
            "loss_agg_mode": "seq-mean-token-sum",
            **ACTOR_BLOCK,
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


def test_a_peer_older_than_all_is_asked_as_the_oldest(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_releases, "_installed", lambda _: "0.8.0.dev1")
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    with pytest.warns(UserWarning, match=r"verl 0\.8\.0\.dev1 is older than 0\.9\.0"):
        verl.compute_rollout_correction_and_rejection_mask(old, rollout, mask, "token")
    assert service.requests[0].method.dialect.release == "0.9.0"


def test_a_boolean_threshold_is_verls_type_error(service: FakeServer) -> None:
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    call = verl.compute_rollout_correction_and_rejection_mask
    with pytest.raises(TypeError, match="not a boolean") as caught:
        call(old, rollout, mask, rollout_is="token", rollout_is_threshold=True)
    assert isinstance(caught.value, cw.InvalidRequestError)
    assert [v.field for v in caught.value.violations] == ["rollout_is_threshold"]
    assert not service.requests
    assert pickle.loads(pickle.dumps(caught.value)).violations == caught.value.violations
