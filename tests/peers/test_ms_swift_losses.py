"""``counterweight_rl.compat.ms_swift``'s losses beside those of ms-swift's two trainers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import ms_swift_trainer
import pytest
import torch
from comparison import METRIC, in_float64, same_gradient
from counterweight_rl.compat import ms_swift
from test_ms_swift import DRAWS, ITEMS, MEGATRON, SETTINGS, inputs

pytestmark = pytest.mark.filterwarnings("ignore:method.block", "ignore:rule")

OPSM = {"off_policy_sequence_mask_delta": 0.01}
OTHERS: dict[str, dict[str, Any]] = {
    **SETTINGS,
    "everything": {
        **OPSM,
        "loss_type": "dapo",
        "epsilon": 0.1,
        "epsilon_high": 0.28,
        "delta": 1.5,
        "rollout_importance_sampling_mode": "sequence_mask",
        "rollout_importance_sampling_threshold": 1.05,
        "gradient_accumulation_steps": 4,
    },
    "KL in the reward": {"kl_in_reward": True},
    "no correction": {
        "rollout_importance_sampling_mode": "token_mask",
        "disable_rollout_importance_sampling": True,
    },
}
TRUNCATED = torch.tensor([True, False, False, True, False, False])


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_, **__: None)
    megatron: Any = SimpleNamespace(mpu=ms_swift_trainer.megatron.mpu)
    monkeypatch.setitem(sys.modules, "megatron", SimpleNamespace(core=megatron))
    monkeypatch.setitem(sys.modules, "megatron.core", megatron)


def same(
    settings: dict[str, Any], given: dict[str, torch.Tensor | None], mixin: Any = None
) -> dict[str, float]:
    """Compares loss, gradient and all metrics, and returns these."""
    if mixin is None:
        is_megatron = settings.get("backend") == "megatron"
        mixin = ms_swift.MegatronGRPOLossMixin if is_megatron else ms_swift.GRPOLossMixin
    exact = {key: in_float64(one) for key, one in given.items()}
    expected = ms_swift_trainer.answer(settings, exact, ITEMS)
    actual = ms_swift_trainer.answer(settings, given, ITEMS, mixin)
    assert actual[0] == pytest.approx(expected[0], rel=2e-5, abs=1e-7)
    assert given["mask"] is not None
    same_gradient(actual[1], actual[1], expected[1], given["mask"])
    near = {
        name: pytest.approx(one, rel=METRIC["rtol"], abs=2e-5) for name, one in expected[2].items()
    }
    assert actual[2] == near
    return expected[2]


@pytest.mark.compares("compat.ms_swift.GRPOLossMixin")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", OTHERS)
def test_the_loss_is_ms_swifts_own(name: str, draw: str) -> None:
    same(OTHERS[name], inputs(draw))


@pytest.mark.compares("compat.ms_swift.MegatronGRPOLossMixin")
@pytest.mark.parametrize("draw", ["plain", "negative", "empty_row", "no_rollout"])
@pytest.mark.parametrize("name", OTHERS)
def test_megatrons_loss_is_ms_swifts_own(name: str, draw: str) -> None:
    same({**OTHERS[name], **MEGATRON}, inputs(draw))


@pytest.mark.compares("compat.ms_swift.MegatronGRPOLossMixin")
def test_megatron_without_a_reference_has_no_penalty() -> None:
    assert "kl" not in same(MEGATRON, {**inputs("plain"), "ref": None})


@pytest.mark.compares("compat.ms_swift.GRPOLossMixin")
@pytest.mark.parametrize("backend", [{}, MEGATRON], ids=["transformers", "megatron"])
@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo"])
def test_truncated_completions_are_filtered(loss_type: str, backend: dict[str, Any]) -> None:
    settings = {
        **backend,
        "loss_type": loss_type,
        "overlong_filter": True,
        "rollout_importance_sampling_mode": "sequence_truncate",
    }
    same(settings, {**inputs("plain"), "truncated": TRUNCATED})


@pytest.mark.compares("compat.ms_swift.GRPOLossMixin")
def test_ranks_share_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ms_swift_trainer.trainer

    def of_four_ranks(*given: Any) -> Any:
        one = made(*given)
        one.accelerator.num_processes = 4
        return one

    monkeypatch.setattr(ms_swift_trainer, "trainer", of_four_ranks)
    same({"loss_type": "dapo", "gradient_accumulation_steps": 3}, inputs("plain"))
    same({"loss_type": "bnpo"}, inputs("plain"))


@pytest.mark.compares("compat.ms_swift.GRPOLossMixin")
@pytest.mark.parametrize("backend", [{}, MEGATRON], ids=["transformers", "megatron"])
def test_an_installed_loss(monkeypatch: pytest.MonkeyPatch, backend: dict[str, Any]) -> None:
    """As --external_plugins has it; a second installation changes nothing."""
    original, megatron = ms_swift_trainer.original, ms_swift_trainer.megatron
    module, name, mixin = (
        (megatron, "MegatronGRPOTrainer", ms_swift.MegatronGRPOLossMixin)
        if backend
        else (original, "GRPOTrainer", ms_swift.GRPOLossMixin)
    )
    own = getattr(module, name)
    made: Any = type("Trainer", (own,), {})
    mixin.install(made)
    mixin.install(made)
    settings = {**backend, **OPSM, "rollout_importance_sampling_mode": "token_truncate"}
    given = inputs("plain")
    exact = {key: in_float64(one) for key, one in given.items()}
    expected = ms_swift_trainer.answer(settings, exact, ITEMS)
    monkeypatch.setattr(module, name, made)
    calls: list[Any] = []
    correct = ms_swift._ms_swift_loss._service.correct
    monkeypatch.setattr(
        ms_swift._ms_swift_loss._service,
        "correct",
        lambda *one, **more: calls.append(one) or correct(*one, **more),
    )
    actual = ms_swift_trainer.answer(settings, given, ITEMS)
    assert len(calls) == 1
    assert actual[0] == pytest.approx(expected[0], rel=2e-5)
    assert actual[2].keys() == expected[2].keys()


@pytest.mark.compares("compat.ms_swift.GRPOLossMixin")
@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"loss_type": "real"}, "loss_type"),
        ({"loss_type": "fipo"}, "loss_type"),
        ({"top_entropy_quantile": 0.5}, "top_entropy_quantile"),
        ({"sdar_loss_coef": 0.1}, "sdar_loss_coef"),
        ({"delta": -1.0}, "delta"),
    ],
)
def test_what_is_refused(documented: Any, settings: dict[str, Any], field: str) -> None:
    documented("settings that the module's documentation lists, and wrong ones")
    with pytest.raises(cw.InvalidRequestError) as caught:
        ms_swift_trainer.answer(settings, inputs("plain"), ITEMS, ms_swift.GRPOLossMixin)
    assert [one.field.rpartition(".")[2] for one in caught.value.violations] == [field]
    with pytest.raises(cw.InvalidRequestError, match="use_liger_kernel"):
        ms_swift.GRPOLossMixin().compute_liger_loss(None, {}, None)


@pytest.mark.compares("compat.ms_swift.GRPOLossMixin")
def test_other_data_are_refused(documented: Any) -> None:
    documented("chord_sft_dataset")
    kind = type("Trainer", (ms_swift.GRPOLossMixin, ms_swift_trainer.original.GRPOTrainer), {})
    made = ms_swift_trainer.trainer(kind, {})
    made.chord_sft_iterator = iter(())
    with pytest.raises(cw.InvalidRequestError, match="chord_sft_dataset"):
        made._compute_loss_and_metrics(None, {}, None)
