"""Hooks that compute a loss, with objects that replace the frameworks'."""

from __future__ import annotations

import enum
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_service import GRADIENT, answers, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT, Request, Response

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.hooks import nemo_rl, prime_rl  # noqa: E402

METRICS = {"kl": 0.5, "k3": 0.25, "kept_token_fraction": 1.0}


def cut_to_size(request: Request, context: Any) -> Response:
    """Answers for as many tokens as there are, of one row's number where it is a trial."""
    response = answers(METRICS)(request, context)
    mask = next(
        tensor for tensor in request.tensors if tensor.role == tensor_pb2.TENSOR_ROLE_RESPONSE_MASK
    )
    for tensor in response.tensors:
        tensor.data = tensor.data[: len(tensor.data) * len(mask.data) // OLD.size]
    return response


@pytest.fixture
def losses(service: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    service.handler = cut_to_size
    monkeypatch.setattr(prime_rl, "_started", None)
    return service


def sequence(**changes: Any) -> SimpleNamespace:
    """A sequence as prime-rl gives it."""
    current, rollout, advantages = tensors(OLD[0], ROLLOUT[0], np.ones(3, np.float32))
    fields = {
        "trainer_logprobs": current.requires_grad_(),
        "inference_logprobs": rollout,
        "ref_logprobs": None,
        "advantages": advantages,
        "loss_mask": torch.from_numpy(MASK[0].astype(bool)),
        "loss_weights": None,
    }
    return SimpleNamespace(**{**fields, **changes})


def test_prime_rl(losses: FakeServer) -> None:
    inputs = sequence()
    for _ in range(2):
        outputs = prime_rl.policy_loss(inputs, method={"preset": "token_tis", "upper": 3.0})
    assert outputs.loss.item() == 1.5
    outputs.loss.backward()
    np.testing.assert_array_equal(inputs.trainer_logprobs.grad, GRADIENT[0])
    assert {name: value.item() for name, value in outputs.metrics.items()} == {
        "counterweight/kl": 0.5,
        "counterweight/k3": 0.25,
        "counterweight/kept_token_fraction": 1.0,
    }
    trial, first, second = losses.requests
    assert first.method == second.method == trial.method
    assert first.method.preset.name == "token_tis"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"methd": "token_tis"}, r"^methd is not a setting; did you mean 'method'\?$"),
        ({"method": 3}, r"^method must be a preset's name or a mapping; got 3$"),
        ({"method": {"dialect": "verl", "rollout_is": "token"}}, r"^the method must be a preset"),
        ({"timeout": -1}, r"^timeout "),
    ],
)
def test_prime_rl_refuses_settings(
    losses: FakeServer, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        prime_rl.policy_loss(sequence(), **kwargs)
    assert not losses.requests


def test_prime_rl_refuses_weights_of_tokens(losses: FakeServer) -> None:
    # At masked tokens they may be anything.
    prime_rl.policy_loss(sequence(loss_weights=torch.tensor([1.0, 1.0, 0.0])))
    with pytest.raises(ValueError, match="takes no loss_weights but 1"):
        prime_rl.policy_loss(sequence(loss_weights=torch.tensor([1.0, 0.5, 0.0])))


class LossType(enum.Enum):
    TOKEN_LEVEL = "token_level"
    SEQUENCE_LEVEL = "sequence_level"


class ClippedPGLoss:
    """The attributes of NeMo-RL's loss that the hook reads; its call returns its penalties."""

    def __init__(self, **changes: Any) -> None:
        self.loss_type = LossType.TOKEN_LEVEL
        self.input_type = "logprob"
        self.metric_normalizations = {"gen_kl_error": "tokens"}
        self.disable_ppo_ratio = self.force_on_policy_ratio = self.use_cispo = False
        self.sequence_level_importance_ratios = False
        self.ratio_clip_min, self.ratio_clip_max = 0.2, 0.28
        self.ratio_clip_c: float | None = None
        self.use_importance_sampling_correction = True
        self.truncated_importance_sampling_type: str | None = "tis"
        self.truncated_importance_sampling_ratio: float | None = 2.0
        self.truncated_importance_sampling_ratio_min: float | None = None
        vars(self).update(changes)

    def __call__(
        self,
        next_token_logprobs: Any,
        data: Any,
        global_valid_seqs: Any,
        global_valid_toks: Any,
    ) -> tuple[Any, dict[str, Any]]:
        assert not data["advantages"].any()
        return next_token_logprobs.sum() * 0 + 0.25, {"loss": 0.25, "gen_kl_error": 1.0}


def micro_batch() -> dict[str, Any]:
    """A micro-batch as NeMo-RL gives it: positions from the first token on."""

    def shifted(array: np.ndarray) -> Any:
        return torch.from_numpy(np.concatenate([np.full((2, 1), 9, array.dtype), array], axis=1))

    return {
        "advantages": shifted(np.ones_like(OLD)),
        "prev_logprobs": shifted(OLD),
        "generation_logprobs": shifted(ROLLOUT),
        "token_mask": shifted(MASK.astype(np.float32)),
        "sample_mask": torch.ones(2),
    }


def test_nemo_rl(losses: FakeServer) -> None:
    loss_fn = nemo_rl.PolicyLoss(ClippedPGLoss(), "token_tis", target=losses.target)
    # Ray sends it to the workers.
    loss_fn = pickle.loads(pickle.dumps(loss_fn))
    assert loss_fn.loss_type is LossType.TOKEN_LEVEL
    assert loss_fn.input_type == "logprob"
    assert loss_fn.metric_normalizations["counterweight_kl"] == "tokens"
    assert not hasattr(loss_fn, "other")
    data = micro_batch()
    current = torch.from_numpy(OLD.copy()).requires_grad_()
    loss, metrics = loss_fn(current, data, torch.tensor(4), torch.tensor(12))
    assert loss.item() == 1.75
    loss.backward()
    np.testing.assert_array_equal(current.grad, GRADIENT)
    assert data["advantages"].any()
    tokens = int(MASK.sum())
    assert metrics == {
        "loss": 1.75,
        "gen_kl_error": 1.0,
        "counterweight_kl": 0.5 * tokens / 12,
        "counterweight_k3": 0.25 * tokens / 12,
    }
    request = losses.requests[-1]
    assert (request.global_counts.num_tokens, request.global_counts.num_sequences) == (12, 4)
    sent = {tensor_pb2.TensorRole.Name(tensor.role): tensor.data for tensor in request.tensors}
    assert np.frombuffer(sent["TENSOR_ROLE_OLD_LOG_PROBS"], "<f4").tolist() == OLD.ravel().tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"disable_ppo_ratio": True, "ratio_clip_c": 3.0},
            r"^loss_fn\.ratio_clip_c cannot be used with disable_ppo_ratio",
        ),
        (
            {
                "sequence_level_importance_ratios": True,
                "ratio_clip_c": 3.0,
                "loss_type": LossType.SEQUENCE_LEVEL,
            },
            r"^loss_fn\.ratio_clip_c cannot be used with sequence_level_importance_ratios",
        ),
    ],
)
def test_nemo_rl_refuses(losses: FakeServer, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nemo_rl.PolicyLoss(ClippedPGLoss(**changes))
    with pytest.raises(ValueError, match=r"^runn is not a setting; did you mean 'run'"):
        nemo_rl.PolicyLoss(ClippedPGLoss(), runn="a")


def test_a_preset_object(losses: FakeServer) -> None:
    nemo_rl.PolicyLoss(ClippedPGLoss(), cw.Preset("icepop", upper=3.0))
    assert losses.requests[-1].method.preset.name == "icepop"
