"""GRPOMixin's requests and its results in place of GRPOTrainer's loss."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, bad_request
from sample import MASK, OLD, ROLLOUT, Request, Response, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from fake_trl import (  # noqa: E402
    BLOCK,
    GRADIENT,
    LOSS,
    METRICS,
    GRPOTrainer,
    Trainer,
    block,
    grpo_config,
    inputs,
    model,
    roles,
    values,
)

from counterweight_rl import compat  # noqa: E402
from counterweight_rl.compat import _releases  # noqa: E402
from counterweight_rl.compat.trl import GRPOMixin  # noqa: E402


@pytest.fixture(autouse=True)
def service(
    server: FakeServer, client: cw.Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeServer]:
    """Answers LOSS, GRADIENT and METRICS; the configuration of a new trainer with any gradient."""

    def handler(request: Request, _: Any) -> Response:
        response = Response(metrics={} if request.omit_metrics else METRICS, loss=LOSS)
        if tensor_pb2.TENSOR_ROLE_GRADIENT in request.outputs:
            response.tensors.add(
                role="TENSOR_ROLE_GRADIENT", dtype="D_TYPE_F32", data=GRADIENT.tobytes()
            )
        if tensor_pb2.TENSOR_ROLE_KEEP_MASK in request.outputs:
            mask = sent(request, tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data
            response.tensors.add(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=mask)
        return response

    server.handler = handler
    monkeypatch.setattr(metadata, "version", lambda name: {"trl": "1.16.0"}[name])
    compat.use(client)
    yield server
    compat.use(None)


def test_the_loss_is_the_services(service: FakeServer) -> None:
    trainer, (log_probs, entropies) = Trainer(grpo_config()), model()
    loss = trainer._compute_loss((log_probs, entropies), inputs(pixel_values="pixels"))
    loss.backward()
    assert loss.item() == LOSS
    assert trainer.images == "pixels"
    np.testing.assert_array_equal(log_probs.grad.numpy(), GRADIENT)
    assert entropies.grad is None
    request = service.requests[-1]
    assert request.method.dialect.system == "trl"
    assert not request.method.dialect.ignore_unknown_fields
    assert block(request) == BLOCK
    assert sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data == OLD.tobytes()
    assert sent(request, tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS).data == ROLLOUT.tobytes()
    assert sent(request, tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data == MASK.tobytes()
    assert "REF_LOG_PROBS" not in roles(request)


def test_secrets_do_not_travel(service: FakeServer) -> None:
    Trainer(grpo_config())._compute_loss(model(), inputs())
    assert len(service.requests) == 2
    for request in service.requests:
        assert b"hf_secret" not in request.SerializeToString()


def test_the_trainers_own_attributes_stand_over_its_configuration(service: FakeServer) -> None:
    trainer = Trainer(grpo_config())
    trainer.beta, trainer.epsilon_low, trainer.use_vllm = 0.5, 0.1, False
    trainer._compute_loss(model(), inputs(ref_per_token_logps=torch.from_numpy(OLD - 1)))
    expected = {**BLOCK, "beta": 0.5, "epsilon": 0.1, "use_vllm": False}
    assert block(service.requests[-1]) == expected
    assert "REF_LOG_PROBS" in roles(service.requests[-1])


def test_evaluation_accumulates_nothing_and_needs_no_gradient(service: FakeServer) -> None:
    trainer = Trainer(grpo_config(loss_type="dapo"))
    trainer.model.training = False
    with torch.no_grad():
        assert trainer._compute_loss(model(), inputs()).item() == LOSS
    request = service.requests[-1]
    steps = {"gradient_accumulation_steps": 1.0, "steps_per_generation": 1.0}
    assert block(request) == {**BLOCK, "loss_type": "dapo", **steps}
    assert tensor_pb2.TENSOR_ROLE_GRADIENT not in request.outputs
    assert trainer._metrics["eval"]["kl"]
    assert not trainer._metrics["train"]


def test_the_answer_is_that_of_the_installed_release(service: FakeServer) -> None:
    sampling = torch.from_numpy(ROLLOUT.copy())
    sampling[0, 1] = math.nan
    loss = Trainer(grpo_config(loss_type="luspo"))._compute_loss(
        model(), inputs(sampling_per_token_logps=sampling)
    )
    assert loss.item() == LOSS
    request = service.requests[-1]
    assert request.method.dialect.release == "1.16.0"
    assert block(request) == {**BLOCK, "loss_type": "luspo"}
    assert math.isnan(values(request, "ROLLOUT_LOG_PROBS")[1])


# The work around the service's loss.


def test_weights_without_their_log_probs_travel_in_the_advantages(service: FakeServer) -> None:
    trainer = Trainer(grpo_config())
    ratio = torch.tensor([[0.5], [3.0]])
    batch = inputs(sampling_per_token_logps=None, importance_sampling_ratio=ratio)
    trainer._compute_loss(model(), batch)
    request = service.requests[-1]
    assert block(request) == {**BLOCK, "vllm_importance_sampling_correction": False}
    assert "ROLLOUT_LOG_PROBS" not in roles(request)
    assert values(request, "ADVANTAGES") == [0.5] * 3 + [-6.0] * 3
    trainer.loss_type = "vespo"
    with pytest.raises(ValueError, match="sampling_per_token_logps"):
        trainer._compute_loss(model(), batch)


def test_tokens_of_low_entropy_have_no_advantage(service: FakeServer) -> None:
    trainer = Trainer(grpo_config(top_entropy_quantile=0.5))
    trainer._compute_loss(model(), inputs())
    assert values(service.requests[-1], "ADVANTAGES") == [0, 1, 0, -2, 0, 0]


@pytest.mark.parametrize(
    ("quantile", "entropy", "gradient"),
    [
        # Tokens of entropy 1, 2 and 5 count, or with a quantile 2 and 5.
        (1.0, 8 / 3, [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0]]),
        (0.5, 7 / 2, [[0, 1 / 2, 0], [1 / 2, 0, 0]]),
    ],
)
def test_entropy_bonus(quantile: float, entropy: float, gradient: list[list[float]]) -> None:
    coefficient, steps = 0.25, 4
    trainer = Trainer(grpo_config(entropy_coef=coefficient, top_entropy_quantile=quantile))
    log_probs, entropies = model()
    loss = trainer._compute_loss((log_probs, entropies), inputs())
    loss.backward()
    assert loss.item() == pytest.approx(LOSS - coefficient * entropy / steps)
    np.testing.assert_array_equal(log_probs.grad.numpy(), GRADIENT)
    expected = -coefficient / steps * np.array(gradient)
    np.testing.assert_allclose(entropies.grad.numpy(), expected, rtol=1e-6)
    log = trainer._metrics["train"]
    assert log["policy_loss"] == [LOSS * steps]
    assert log["entropy_coef"] == [coefficient]


def test_auxiliary_loss() -> None:
    trainer = Trainer(grpo_config())
    trainer.aux_loss_enabled = True
    assert trainer._compute_loss(model(), inputs()).item() == LOSS + 0.5 * 2.0 / 4
    assert trainer._metrics["train"]["aux_loss"] == [2.0]


# Metrics.


def test_metrics_are_of_all_ranks() -> None:
    trainer = Trainer(grpo_config())
    # Entropy and the four means, as sums and counts: 3 tokens here, 1 there.
    sums = [[1.0, 1.0, 1.0, 0.0, 1.0], [1.0] * 5]
    trainer.accelerator.other = {"sums": torch.tensor(sums), "extrema": [[0.0, math.nan]]}
    trainer._compute_loss(model(), inputs())
    assert trainer._metrics["train"] == {
        "entropy": [9 / 4],
        "kl": [1.75 / 4],
        "clip_ratio/low_mean": [2.5 / 4],
        "clip_ratio/high_mean": [0.0],
        "clip_ratio/region_mean": [2.5 / 4],
        "clip_ratio/low_min": [0.0],
        "clip_ratio/high_max": [0.75],
    }


def test_clip_ratios_of_the_level_sequence_are_means_over_rows() -> None:
    trainer = Trainer(grpo_config(importance_sampling_level="sequence"))
    trainer.accelerator.other = {"sums": torch.tensor([[0.0] * 5, [1.0] * 5])}
    trainer._compute_loss(model(), inputs())
    log = trainer._metrics["train"]
    assert log["kl"] == [0.75 / 4]
    assert log["clip_ratio/low_mean"] == [pytest.approx(1 / 3)]


def test_without_any_extremum_it_is_not_a_number(service: FakeServer) -> None:
    trainer, inner = Trainer(grpo_config()), service.handler

    def handler(request: Request, context: Any) -> Response:
        response = inner(request, context)
        response.metrics["clip_ratio/low_min"] = response.metrics["clip_ratio/high_max"] = math.nan
        return response

    service.handler = handler
    trainer._compute_loss(model(), inputs())
    log = trainer._metrics["train"]
    assert math.isnan(log["clip_ratio/low_min"][0])
    assert math.isnan(log["clip_ratio/high_max"][0])


# Refusals.


def test_a_configuration_is_tried_when_a_trainer_is_made(service: FakeServer) -> None:
    Trainer(grpo_config(beta=0.5))
    (request,) = service.requests
    assert request.omit_metrics
    assert request.compute_loss
    assert block(request)["vllm_importance_sampling_mode"] == "token_truncate"
    everything = ["OLD", "ROLLOUT", "REF", "CURRENT"]
    log_probs = {f"{policy}_LOG_PROBS" for policy in everything}
    assert roles(request) == {*log_probs, "ADVANTAGES", "RESPONSE_MASK"}
    service.handler = bad_request("method.dialect.block.beta")
    with pytest.raises(cw.InvalidRequestError) as caught:
        Trainer(grpo_config(beta=-1.0))
    assert caught.value.violations[0].path == "method.dialect.block.beta"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"use_adaptive_entropy": True}, "use_adaptive_entropy"),
        ({"loss_type": "vespo", "top_entropy_quantile": 0.2}, "top_entropy_quantile"),
    ],
)
def test_what_no_gradient_of_log_probs_has(
    service: FakeServer, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(cw.InvalidRequestError, match=field) as caught:
        Trainer(grpo_config(**changes))
    assert [v.field for v in caught.value.violations] == [field]
    assert service.requests == []


def test_ligers_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    # The trainer of TRL < 1.14 has the attribute; its compute_loss never calls _compute_loss.
    monkeypatch.setattr(GRPOTrainer, "use_liger_kernel", True, raising=False)
    with pytest.raises(cw.InvalidRequestError, match="use_liger_kernel"):
        Trainer(grpo_config())


def test_an_older_release_has_another_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "1.9.0")
    with pytest.raises(ImportError, match=r"1\.10.*1\.9\.0"):
        Trainer(grpo_config())
    _releases._installed.cache_clear()
    monkeypatch.setattr(metadata, "version", lambda _: "2.0.0.dev0")
    Trainer(grpo_config())


def test_a_loss_of_ones_own_is_not_replaced() -> None:
    class GMPOTrainer(GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return 0

    with pytest.raises(TypeError, match="GMPOTrainer has a loss of its own"):
        type("Trainer", (GRPOMixin, GMPOTrainer), {})
    # A subclass that calls the service's loss is accepted, and so is a mixin of mixins.
    type("Trainer", (Trainer,), {"_compute_loss": lambda *_: 0})
    type("Mixin", (GRPOMixin,), {})


def test_the_mixin_stands_first() -> None:
    with pytest.raises(TypeError, match="must stand before GRPOTrainer"):
        type("Trainer", (GRPOTrainer, GRPOMixin), {})


# The ready-made trainer.


def test_trainer_to_import(monkeypatch: pytest.MonkeyPatch) -> None:
    trl = ModuleType("trl")
    trl.GRPOTrainer = GRPOTrainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trl", trl)
    module = importlib.import_module("counterweight_rl.compat.trl")
    made = module.GRPOTrainer
    monkeypatch.delattr(module, "GRPOTrainer")
    assert issubclass(made, GRPOTrainer)
    assert made.__mro__[1] is GRPOMixin
    assert (made.__module__, made.__name__) == ("counterweight_rl.compat.trl", "GRPOTrainer")
    with pytest.raises(AttributeError, match="GRPOConfig"):
        _ = module.GRPOConfig
