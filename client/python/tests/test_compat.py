"""What the other systems' functions ask for, and what they make of the answer."""

from __future__ import annotations

import inspect
import pickle
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_service import GRADIENT, KEEP, block, roles, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Request, Response, sent

import counterweight as cw
from counterweight._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight.compat import _releases, openrlhf, trl, verl  # noqa: E402

pytestmark = pytest.mark.usefixtures("service")


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


# Of old and rollout log-probs and the mask.
DTYPES = [
    (torch.bfloat16, torch.bfloat16, torch.int64),
    (torch.bfloat16, torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.float32, torch.bool),
    (torch.float32, torch.bfloat16, torch.int64),
    (torch.float16, torch.bfloat16, torch.int64),
    (torch.float32, torch.float32, torch.bool),
    (torch.float64, torch.float64, torch.float32),
]


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_verl_weights_have_the_dtype_of_verls_formula(dtypes: tuple[Any, ...]) -> None:
    old, rollout, mask = (
        tensor.to(dtype) for tensor, dtype in zip(tensors(OLD, ROLLOUT, MASK), dtypes, strict=True)
    )
    holder, kept, _ = verl.compute_rollout_correction_and_rejection_mask(
        old, rollout, mask, "token"
    )
    assert holder.batch["rollout_is_weights"].dtype == ((old - rollout).exp() * mask).dtype
    assert kept.dtype == mask.dtype


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_trl_ratio_has_the_dtype_of_trls_formula(dtypes: tuple[Any, ...]) -> None:
    old, rollout, mask = (
        tensor.to(dtype) for tensor, dtype in zip(tensors(OLD, ROLLOUT, MASK), dtypes, strict=True)
    )
    ratio, _ = trl.vllm_importance_sampling_ratio(old, rollout, mask)
    assert ratio.dtype == ((old - rollout) * mask).exp().dtype


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
    # The server refuses what it does not know: here it says something.
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
    loss, clip_ratio, ppo_kl, *rest = module(current, old, advantages)
    loss.backward()
    np.testing.assert_array_equal(current.grad.numpy(), GRADIENT)
    assert (loss.item(), clip_ratio.item(), ppo_kl.item(), rest) == (1.5, 0.125, -0.5, [None, None])
    assert clip_ratio.shape == ppo_kl.shape == ()
    (request,) = service.requests
    assert block(request) == {
        "eps_clip_low_high": [0.1, 0.3],
        "dual_clip": 2.0,
        "token_level_loss": True,
        "policy_loss_type": "ppo",
        "dp_size": 1.0,
    }
    assert request.method.dialect.release == ""
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
    assert service.requests[0].method.dialect.release == "0.11.1"
    assert sent_block["vllm_is_truncated_threshold"] == [0.5, 5.0]
    assert (sent_block["dp_size"], sent_block["batch_num_tokens"]) == (2.0, 300.0)
    assert sent_block["global_batch_size"] == 16.0
    assert sent(service.requests[0], tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS)


@pytest.mark.parametrize(
    ("installed", "asked"), [(None, ""), ("0.11.3", "0.11.3"), ("0.11.1", "0.11.2")]
)
def test_openrlhf_by_level(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch, installed: str | None, asked: str
) -> None:
    monkeypatch.setattr(_releases, "_installed", lambda _: installed)
    inner = service.handler

    def with_filter(request: Request, context: Any) -> Response:
        response = inner(request, context)
        response.metrics["vllm_kl"] = 0.75
        response.metrics["is_filter_ratio"] = 0.25
        return response

    service.handler = with_filter
    current, old, advantages, rollout = tensors(OLD * 2, OLD, ROLLOUT, ROLLOUT)
    module = openrlhf.PolicyLoss(
        is_correction_level="token",
        is_correction_gating="tv",
        is_correction_threshold=(0.0, 0.1),
    )
    *_, vllm_kl, is_filter_ratio = module(current, old, advantages, rollout_log_probs=rollout)
    assert (vllm_kl.item(), is_filter_ratio.item()) == (0.75, 0.25)
    (request,) = service.requests
    assert request.method.dialect.release == asked
    sent_block = block(request)
    assert sent_block["is_correction_level"] == "token"
    assert sent_block["is_correction_threshold"] == [0.0, 0.1]
    assert "enable_vllm_is_correction" not in sent_block


def test_openrlhf_answers_as_the_installed_release(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_releases, "_installed", lambda _: "0.11.1")
    current, old, advantages = tensors(OLD * 2, OLD, ROLLOUT)
    assert len(openrlhf.PolicyLoss()(current, old, advantages)) == 4
    assert service.requests[0].method.dialect.release == "0.11.1"
    with pytest.raises(TypeError, match=r"before OpenRLHF 0\.11\.2"):
        openrlhf.PolicyLoss(is_correction_level="token", enable_vllm_is_correction=True)


def test_a_peer_older_than_all_is_asked_as_the_oldest(
    service: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_releases, "_installed", lambda _: "0.8.0.dev1")
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    with pytest.warns(UserWarning, match=r"verl 0\.8\.0\.dev1 is older than 0\.9\.0"):
        verl.compute_rollout_correction_and_rejection_mask(old, rollout, mask, "token")
    assert service.requests[0].method.dialect.release == "0.9.0"


def test_openrlhf_checks_at_once_what_the_original_does() -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        openrlhf.PolicyLoss(dual_clip=1.0, vllm_is_correction_type="mis")
    assert [v.field for v in caught.value.violations] == ["dual_clip", "vllm_is_correction_type"]
    with pytest.raises(cw.InvalidRequestError) as caught:
        openrlhf.PolicyLoss(is_correction_level="sequence", is_correction_gating="kl")
    fields = [v.field for v in caught.value.violations]
    assert fields == ["is_correction_level", "is_correction_gating"]


def test_a_boolean_threshold_is_verls_type_error(service: FakeServer) -> None:
    old, rollout, mask = tensors(OLD, ROLLOUT, MASK)
    call = verl.compute_rollout_correction_and_rejection_mask
    with pytest.raises(TypeError, match="not a boolean") as caught:
        call(old, rollout, mask, rollout_is="token", rollout_is_threshold=True)
    assert isinstance(caught.value, cw.InvalidRequestError)
    assert [v.field for v in caught.value.violations] == ["rollout_is_threshold"]
    assert not service.requests
    assert pickle.loads(pickle.dumps(caught.value)).violations == caught.value.violations


def test_openrlhf_names() -> None:
    parameters = inspect.signature(openrlhf.PolicyLoss.__init__).parameters
    assert list(parameters)[1:] == [
        "clip_eps_low",
        "clip_eps_high",
        "dual_clip",
        "token_level_loss",
        "policy_loss_type",
        "is_correction_level",
        "is_correction_mode",
        "is_correction_gating",
        "is_correction_threshold",
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
