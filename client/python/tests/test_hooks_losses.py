"""Hooks that compute a loss, with objects that replace the frameworks'."""

from __future__ import annotations

import enum
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_service import GRADIENT, KEEP, answers, tensors
from fake_server import FakeServer
from google.protobuf import json_format
from sample import MASK, OLD, ROLLOUT, WEIGHTS, Request, Response

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
    ratio = (OLD[0] - ROLLOUT[0])[MASK[0] == 1]
    tokens = MASK[0].sum()
    logged = {name: value.item() for name, value in outputs.metrics.items()}
    assert logged == pytest.approx(
        {
            "counterweight/kl": -ratio.mean(),
            "counterweight/k3": (np.expm1(ratio) - ratio).mean(),
            "counterweight/kept_token_fraction": KEEP[0].sum() / tokens,
            "counterweight/weight_mean": WEIGHTS[0].sum() / tokens,
        },
        rel=1e-5,
    )
    trial, first, second = losses.requests
    assert first.method == second.method == trial.method
    assert first.method.preset.name == "token_tis"


@pytest.mark.parametrize(
    ("kwargs", "block"),
    [
        ({}, {"rl_scale": 1}),
        (
            {"method": {"dialect": "prime_rl", "type": "ipo", "ipo_threshold": 0.25}},
            {"type": "ipo", "ipo_threshold": 0.25, "rl_scale": 1},
        ),
    ],
)
def test_prime_rls_own_losses_are_its_dialects(
    losses: FakeServer, kwargs: dict[str, Any], block: dict[str, Any]
) -> None:
    """prime-rl divides what the hook returns."""
    prime_rl.policy_loss(sequence(), **kwargs)
    dialect = losses.requests[-1].method.dialect
    assert (dialect.system, json_format.MessageToDict(dialect.block)) == ("prime_rl", block)


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
        self.advantages = data["advantages"]
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
    loss_fn = nemo_rl.PolicyLoss(ClippedPGLoss(), target=losses.target)
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
    assert not loss_fn._loss_fn.advantages.any()
    ratio = (OLD - ROLLOUT)[MASK == 1]
    assert metrics == pytest.approx(
        {
            "loss": 1.75,
            "gen_kl_error": 1.0,
            "counterweight_kl": -ratio.sum() / 12,
            "counterweight_k3": (np.expm1(ratio) - ratio).sum() / 12,
        },
        rel=1e-5,
    )
    request = losses.requests[-1]
    assert (request.global_counts.num_tokens, request.global_counts.num_sequences) == (12, 4)
    sent = {tensor_pb2.TensorRole.Name(tensor.role): tensor.data for tensor in request.tensors}
    assert np.frombuffer(sent["TENSOR_ROLE_OLD_LOG_PROBS"], "<f4").tolist() == OLD.ravel().tolist()


def test_nemo_rls_own_loss_is_its_dialects(losses: FakeServer) -> None:
    """The penalties are NeMo-RL's to add."""
    nemo_rl.PolicyLoss(ClippedPGLoss(loss_type=LossType.SEQUENCE_LEVEL, ratio_clip_c=3.0))
    dialect = losses.requests[-1].method.dialect
    assert dialect.system == "nemo_rl"
    assert json_format.MessageToDict(dialect.block) == {
        "disable_ppo_ratio": False,
        "force_on_policy_ratio": False,
        "use_cispo": False,
        "ratio_clip_min": 0.2,
        "ratio_clip_max": 0.28,
        "ratio_clip_c": 3.0,
        "sequence_level_importance_ratios": False,
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "tis",
        "truncated_importance_sampling_ratio": 2.0,
        "truncated_importance_sampling_ratio_min": None,
        "token_level_loss": False,
        "reference_policy_kl_penalty": 0.0,
    }


def test_a_method_weighs_nemo_rls_own_loss(losses: FakeServer) -> None:
    data = micro_batch()
    current = torch.from_numpy(OLD.copy()).requires_grad_()
    # The wrapper calls a copy without NeMo-RL's correction.
    calls: list[tuple[bool, Any]] = []

    class Recorded(ClippedPGLoss):
        def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
            calls.append((self.use_importance_sampling_correction, kwargs["data"]["advantages"]))
            return super().__call__(*args, **kwargs)

    own = Recorded()
    loss, _ = nemo_rl.PolicyLoss(own, "token_tis")(current, data, None, None)
    assert loss.item() == 0.25
    ((corrects, advantages),) = calls
    assert not corrects
    assert own.use_importance_sampling_correction
    np.testing.assert_array_equal(advantages[:, 1:], WEIGHTS * KEEP)


def test_nemo_rl_refuses_an_unknown_setting(losses: FakeServer) -> None:
    with pytest.raises(ValueError, match=r"^runn is not a setting; did you mean 'run'"):
        nemo_rl.PolicyLoss(ClippedPGLoss(), runn="a")


def test_a_preset_object(losses: FakeServer) -> None:
    nemo_rl.PolicyLoss(ClippedPGLoss(), cw.Preset("icepop", upper=3.0))
    assert losses.requests[-1].method.preset.name == "icepop"
