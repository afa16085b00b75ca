"""Requests, attributes and return values of compat.nemo_rl."""

from __future__ import annotations

import enum
import pickle
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from compat_service import GRADIENT, answers, block, roles, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, Response

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import nemo_rl  # noqa: E402

NO_PENALTY = {"reference_policy_kl_penalty": 0.0}


@pytest.fixture(autouse=True)
def nemo_rl_answers(service: FakeServer) -> None:
    metrics = {"gen_kl_error": 0.25, "num_valid_samples": 7.0}
    of_batch = answers(metrics, "Metrics of nemo_rl that are absent")

    def handler(request: Any, context: Any) -> Any:
        if tensor_pb2.TENSOR_ROLE_GRADIENT in request.outputs:
            return of_batch(request, context)
        response = Response(loss=0.0)  # of two tokens
        response.tensors.add(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=b"\x01\x01")
        return response

    service.handler = handler


def micro_batch() -> tuple[Any, dict[str, Any]]:
    """Log-probs [2, 3] of the current policy, and tensors [2, 4] with a NaN first."""
    current, old, rollout, advantages, mask = tensors(
        OLD * 2, OLD, ROLLOUT, ROLLOUT, MASK.astype(np.float32)
    )
    data = {
        **{"prev_logprobs": old, "generation_logprobs": rollout, "advantages": advantages},
        **{"token_mask": mask, "reference_policy_logprobs": old * 3},
    }
    data = {
        name: torch.nn.functional.pad(one, (1, 0), value=torch.nan) for name, one in data.items()
    }
    return current.requires_grad_(), {**data, "sample_mask": torch.ones(2)}


def test_a_loss_asks_for_two_tokens_and_then_for_the_batch(service: FakeServer) -> None:
    loss_fn = nemo_rl.ClippedPGLossFn({**NO_PENALTY, "ratio_clip_c": 3.0, "use_cispo": None})
    current, data = micro_batch()
    loss, metrics = loss_fn(current, data, torch.tensor(5), torch.tensor(70))
    (2 * loss).backward()
    np.testing.assert_array_equal(current.grad.numpy(), 2 * GRADIENT)
    first, second = service.requests
    sent = block(second)
    assert sent["ratio_clip_c"] == 3.0
    assert sent["token_level_loss"] is True
    assert (sent["global_valid_seqs"], sent["global_valid_toks"]) == (5.0, 70.0)
    assert block(first) == {k: v for k, v in sent.items() if not k.startswith("global_")}
    names = {
        "CURRENT_LOG_PROBS",
        "OLD_LOG_PROBS",
        "ROLLOUT_LOG_PROBS",
        "ADVANTAGES",
        "RESPONSE_MASK",
    }
    assert roles(second) == names
    assert metrics["loss"] == 1.5
    assert metrics["gen_kl_error"] == 0.25
    assert metrics["num_valid_samples"] == 2  # of sample_mask
    kept = MASK == 1
    drift = np.abs(OLD.astype(float) - ROLLOUT)[kept]
    assert metrics["token_mult_prob_error"] == pytest.approx(np.exp(drift).sum() / 70)


def test_a_kl_penalty_needs_the_reference_unless_it_is_in_the_reward(service: FakeServer) -> None:
    current, data = micro_batch()
    nemo_rl.ClippedPGLossFn({})(current, data, None, None)
    assert "REF_LOG_PROBS" in roles(service.requests[0]) & roles(service.requests[1])
    assert block(service.requests[1])["global_valid_toks"] == MASK.sum()
    loss_fn = nemo_rl.ClippedPGLossFn({"use_kl_in_reward": True})
    assert loss_fn.reference_policy_kl_penalty == 0
    del data["reference_policy_logprobs"]
    loss_fn(current, data, None, None)
    assert "REF_LOG_PROBS" not in roles(service.requests[3])


def test_on_policy_the_old_log_probs_are_not_read(service: FakeServer) -> None:
    loss_fn = nemo_rl.ClippedPGLossFn({**NO_PENALTY, "force_on_policy_ratio": True})
    current, data = micro_batch()
    del data["prev_logprobs"]
    _, metrics = loss_fn(current, data, None, None)
    assert "OLD_LOG_PROBS" not in roles(service.requests[1])
    kept = MASK == 1
    drift = np.abs(2 * OLD.astype(float) - ROLLOUT)[kept]
    assert metrics["token_mult_prob_error"] == pytest.approx(np.exp(drift).mean())


def test_without_a_ratio_the_log_probs_have_its_names() -> None:
    current, data = micro_batch()
    loss_fn = nemo_rl.ClippedPGLossFn({**NO_PENALTY, "disable_ppo_ratio": True})
    _, metrics = loss_fn(current, data, None, None)
    kept = 2 * OLD[MASK == 1]
    for name in ("probs_ratio", "probs_ratio_clamped"):
        assert metrics[name] == pytest.approx(kept.mean())
        assert (metrics[f"{name}_min"], metrics[f"{name}_max"]) == (kept.min(), kept.max())
    data["sample_mask"] = torch.zeros(2)
    _, metrics = loss_fn(current, data, None, None)
    assert (metrics["probs_ratio_min"], metrics["probs_ratio_max"]) == (np.inf, -np.inf)


def test_log_probs_without_top_p_are_refused_beside_a_kl_penalty(service: FakeServer) -> None:
    current, data = micro_batch()
    data["curr_logprobs_unfiltered"] = current
    nemo_rl.ClippedPGLossFn({})(current, data, None, None)
    data["curr_logprobs_unfiltered"] = current.clone()
    nemo_rl.ClippedPGLossFn(NO_PENALTY)(current, data, None, None)
    before = len(service.requests)
    loss_fn = nemo_rl.ClippedPGLossFn({})
    with pytest.raises(cw.InvalidRequestError, match="same log-probs here") as caught:
        loss_fn(current, data, None, None)
    assert [v.field for v in caught.value.violations] == ["curr_logprobs_unfiltered"]
    assert len(service.requests) == before + 1


def test_fields_that_are_not_known_are_the_servers_to_refuse(service: FakeServer) -> None:
    """A ClippedPGLossConfig takes any field; those that it does not know are beside the others."""
    others = {"ratio_clip_maximum": 0.3, "new": None}
    for given in (Config(others), {**NO_PENALTY, **others}):
        nemo_rl.ClippedPGLossFn(given)
        sent = block(service.requests[-1])
        assert sent["ratio_clip_maximum"] == 0.3
        assert "new" not in sent


class Config:
    """Like a pydantic model with fields of its own, and others."""

    def __init__(self, others: dict[str, Any]) -> None:
        vars(self).update(NO_PENALTY)
        self._others = others

    @property
    def model_extra(self) -> dict[str, Any]:
        return self._others


class LossType(enum.Enum):
    TOKEN_LEVEL = "token_level"
    SEQUENCE_LEVEL = "sequence_level"


class LossInputType(enum.Enum):
    LOGIT = "logit"
    LOGPROB = "logprob"


class MetricNormalizer(enum.Enum):
    TOKENS = "tokens"
    SEQUENCES = "sequences"
    NONE = "none"


def test_it_has_the_members_of_a_loss_function_and_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    home = "nemo_rl.algorithms.loss.interfaces"
    parts = home.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules[home]).update(
        LossType=LossType, LossInputType=LossInputType, MetricNormalizer=MetricNormalizer
    )
    made = nemo_rl.ClippedPGLossFn(
        {**NO_PENALTY, "token_level_loss": False}, use_fused_linear_logprobs=True
    )
    loss_fn = pickle.loads(pickle.dumps(made))
    assert loss_fn.loss_type is LossType.SEQUENCE_LEVEL
    assert loss_fn.input_type is LossInputType.LOGPROB
    assert loss_fn.use_fused_linear_logprobs
    assert loss_fn.metric_normalizations["loss"] is MetricNormalizer.SEQUENCES
    assert loss_fn.metric_normalizations["approx_entropy"] is MetricNormalizer.TOKENS
    assert "is_oob_ratio" not in loss_fn.metric_normalizations


def test_attributes_are_read_by_each_call(service: FakeServer) -> None:
    loss_fn = nemo_rl.ClippedPGLossFn(NO_PENALTY)
    loss_fn.use_importance_sampling_correction = True
    current, data = micro_batch()
    loss_fn(current, data, None, None)
    assert block(service.requests[1])["use_importance_sampling_correction"] is True
