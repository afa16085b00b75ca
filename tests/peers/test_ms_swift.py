"""The dialect "ms_swift", and ``counterweight_rl.compat.ms_swift``, beside ms-swift's trainers."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import ms_swift_trainer
import pytest
import random_batches
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, GRADIENT_RTOL, LOSS, METRIC, in_float64
from counterweight_rl.compat import client, ms_swift
from counterweight_rl.dialect_fields import FIELDS

pytestmark = pytest.mark.filterwarnings("ignore:method.block", "ignore:rule")

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
NO_KL = {"beta": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{mode: {"rollout_importance_sampling_mode": mode} for mode in MODES},
    **{
        f"{mode}, narrow": {
            **NO_KL,
            "rollout_importance_sampling_mode": mode,
            "rollout_importance_sampling_threshold": 1.05,
        }
        for mode in MODES
    },
    "metrics alone": {"log_rollout_offpolicy_metrics": True},
    "no KL": NO_KL,
    "clip higher": {**NO_KL, "epsilon": 0.1, "epsilon_high": 0.28},
    "delta": {**NO_KL, "delta": 1.1},
    "gspo": {"importance_sampling_level": "sequence", "epsilon": 0.01},
    "gspo by token": {"importance_sampling_level": "sequence_token", "epsilon": 0.01},
    "opsm": {**NO_KL, "off_policy_sequence_mask_delta": 0.01},
    "opsm, weights": {
        "off_policy_sequence_mask_delta": 0.01,
        **{"rollout_importance_sampling_mode": "token_truncate"},
    },
    "bnpo": {"loss_type": "bnpo"},
    "bnpo, opsm": {"loss_type": "bnpo", "off_policy_sequence_mask_delta": 0.01},
    "dr_grpo": {"loss_type": "dr_grpo", "max_completion_length": 31},
    "dapo": {"loss_type": "dapo"},
    "dapo, accumulated": {"loss_type": "dapo", "gradient_accumulation_steps": 4},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.1},
    "cispo, accumulated": {
        "loss_type": "cispo",
        "epsilon_high": 5.0,
        "gradient_accumulation_steps": 3,
    },
    "sapo": {"loss_type": "sapo"},
    "sapo, sharp": {"loss_type": "sapo", "tau_pos": 4.0, "tau_neg": 0.5},
    "sapo of rows": {"loss_type": "sapo", "importance_sampling_level": "sequence"},
}
DRAWS = ("plain", "negative", "empty_row", "no_old", "no_rollout")
MEGATRON = {"backend": "megatron", "num_microbatches": 3, "dp_size": ms_swift_trainer.RANKS}
ITEMS = 170


def inputs(draw: str) -> dict[str, torch.Tensor | None]:
    batch = random_batches.make(
        59, mask=torch.bool, kept="empty_row" if draw == "empty_row" else "rows"
    )
    advantages = random_batches.per_row(batch.advantages).expand_as(batch.advantages).clone()
    generator = torch.Generator().manual_seed(61)
    return {
        "current": batch.current,
        "old": None if draw == "no_old" else batch.old,
        "rollout": None if draw == "no_rollout" else batch.rollout,
        "ref": batch.old + 0.2 * torch.randn(batch.old.shape, generator=generator),
        "advantages": -advantages.abs() if draw == "negative" else advantages,
        "mask": batch.mask,
    }


def dialect(
    settings: dict[str, Any], given: dict[str, torch.Tensor | None]
) -> tuple[float, torch.Tensor, dict[str, float]]:
    has_kl = settings.get("beta", 0.04) != 0
    result = client().correct(
        current_log_probs=given["current"],
        old_log_probs=given["old"],
        rollout_log_probs=given["rollout"],
        ref_log_probs=given["ref"] if has_kl else None,
        advantages=given["advantages"],
        response_mask=given["mask"],
        method=cw.Dialect("ms_swift", settings),
        outputs=["loss", "gradient"],
    )
    assert result.loss is not None
    assert result.gradient is not None
    return result.loss, result.gradient, result.metrics


def same(actual: Any, expected: Any, mask: torch.Tensor) -> None:
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=LOSS["atol"])
    atol = GRADIENT_ATOL_OF_LARGEST * expected[1].abs().max().item()
    torch.testing.assert_close(
        actual[1].double()[mask], expected[1][mask], rtol=GRADIENT_RTOL, atol=atol
    )
    assert not actual[1][~mask].any()
    compared = actual[2].keys() & expected[2].keys()
    kinds = [{name.partition("/")[0] for name in one} for one in (compared, expected[2])]
    # The mean penalty beside weights has no sum.
    assert kinds[0] | {"kl"} == kinds[1] | {"kl"}
    for name in compared:
        near = pytest.approx(expected[2][name], rel=METRIC["rtol"], abs=METRIC["atol"])
        assert actual[2][name] == near, name
    assert actual[2].keys() == compared


@pytest.mark.compares("dialect ms_swift: GRPOTrainer")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_loss_is_ms_swifts_own(name: str, draw: str) -> None:
    settings, given = SETTINGS[name], inputs(draw)
    exact = {key: in_float64(one) for key, one in given.items()}
    expected = ms_swift_trainer.answer(settings, exact, ITEMS)
    by_items = settings.get("loss_type") in ("dapo", "cispo")
    facts = {"num_items_in_batch": ITEMS} if by_items else {}
    assert given["mask"] is not None
    same(dialect({**settings, **facts}, given), expected, given["mask"])


@pytest.mark.compares("dialect ms_swift: MegatronGRPOTrainer")
@pytest.mark.parametrize("draw", ["plain", "negative", "empty_row"])
@pytest.mark.parametrize("name", SETTINGS)
def test_megatrons_loss_is_ms_swifts_own(
    monkeypatch: pytest.MonkeyPatch, name: str, draw: str
) -> None:
    """It divides bnpo by the step's tokens too, and its clip metrics are of uncapped ratios."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_, **__: None)
    settings, given = {**SETTINGS[name], **MEGATRON}, inputs(draw)
    exact = {key: in_float64(one) for key, one in given.items()}
    loss, gradient, _ = ms_swift_trainer.answer(settings, exact, ITEMS)
    by_items = settings.get("loss_type") in ("dapo", "cispo", "bnpo")
    facts = {"num_items_in_batch": ITEMS} if by_items else {}
    settings.pop("gradient_accumulation_steps", None)
    assert given["mask"] is not None
    actual = dialect({**settings, **facts}, given)
    same((*actual[:2], {}), (loss, gradient, {}), given["mask"])


@pytest.mark.compares("dialect ms_swift: defaults")
def test_the_default_arguments_answer_as_an_empty_block() -> None:
    whole = {
        name: one for name, one in ms_swift_trainer.defaults().items() if name in FIELDS["ms_swift"]
    }
    assert len(whole) > 15
    given = inputs("plain")
    empty, written = dialect({}, given), dialect(whole, given)
    assert empty[0] == written[0]
    assert torch.equal(empty[1], written[1])
    assert empty[2] == written[2]


@pytest.mark.compares("compat.ms_swift.RolloutCorrectionMixin")
@pytest.mark.parametrize("kept", ["rows", "empty_row", "none"])
@pytest.mark.parametrize("kind", ["original", "megatron"])
@pytest.mark.parametrize("threshold", [2.0, 1.05])
@pytest.mark.parametrize("mode", MODES)
def test_the_weights_are_ms_swifts_own(mode: str, threshold: float, kind: str, kept: str) -> None:
    settings = {
        "rollout_importance_sampling_mode": mode,
        "rollout_importance_sampling_threshold": threshold,
    }
    of = ms_swift_trainer
    cut = of.megatron.MegatronGRPOTrainer if kind == "megatron" else of.original.GRPOTrainer
    theirs = of.trainer(cut, settings)
    batch = random_batches.make(59, mask=torch.bool, kept=kept)
    ratio = batch.old - batch.rollout
    expected = theirs._apply_rollout_importance_sampling(ratio.double(), batch.mask)
    # As the class of an external plugin.
    made = type("Trainer", (ms_swift.RolloutCorrectionMixin, cut), {})()
    vars(made).update(vars(theirs))
    weights = made._apply_rollout_importance_sampling(ratio, batch.mask)
    assert weights.dtype == ratio.dtype
    torch.testing.assert_close(
        weights.double()[batch.mask], expected[batch.mask], rtol=1e-5, atol=1e-8
    )
    assert not weights[~batch.mask].any()


@pytest.mark.compares("dialect ms_swift: GRPOTrainer")
@pytest.mark.parametrize("loss_type", ["real", "fipo"])
def test_what_the_dialect_lacks_is_refused(documented: Any, loss_type: str) -> None:
    documented("loss_type real and fipo")
    with pytest.raises(cw.InvalidRequestError, match="is not computed yet"):
        dialect({"loss_type": loss_type}, inputs("plain"))
