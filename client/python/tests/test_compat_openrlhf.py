"""Requests and return values of the functions of compat.openrlhf."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from compat_service import GRADIENT, block, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, Request, Response, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import _releases, openrlhf  # noqa: E402

pytestmark = pytest.mark.usefixtures("service")


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


def test_openrlhf_checks_at_once_what_the_original_does() -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        openrlhf.PolicyLoss(dual_clip=1.0, vllm_is_correction_type="mis")
    assert [v.field for v in caught.value.violations] == ["dual_clip", "vllm_is_correction_type"]
    with pytest.raises(cw.InvalidRequestError) as caught:
        openrlhf.PolicyLoss(is_correction_level="sequence", is_correction_gating="kl")
    fields = [v.field for v in caught.value.violations]
    assert fields == ["is_correction_level", "is_correction_gating"]


def refused(**settings: Any) -> list[str]:
    try:
        openrlhf.PolicyLoss(**settings)
    except cw.InvalidRequestError as error:
        return [violation.field for violation in error.violations]
    return []


@pytest.mark.parametrize("level", ["off", "token", "seq"])
@pytest.mark.parametrize("mode", ["mask", "clip"])
@pytest.mark.parametrize("gating", ["ratio", "binary_kl", "tv"])
@pytest.mark.parametrize("low", [None, 0, 0.5])
def test_openrlhf_combinations(level: str, mode: str, gating: str, low: float | None) -> None:
    """Those that 0.11.2's constructor refuses, and no others."""
    expected = []
    if mode == "clip" and (level, gating) not in {("token", "ratio"), ("off", "ratio")}:
        expected.append("is_correction_mode")
    if gating != "ratio" and level != "off" and low != 0:  # the default has a lower end too
        expected.append("is_correction_threshold")
    threshold = None if low is None else [low, 0.05 + low]
    found = refused(
        is_correction_level=level,
        is_correction_mode=mode,
        is_correction_gating=gating,
        is_correction_threshold=threshold,
    )
    assert found == expected


def test_openrlhf_before_levels_has_no_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_releases, "_installed", lambda _: "0.11.1")
    assert refused() == []
    assert refused(vllm_is_correction_type="icepop") == []


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
