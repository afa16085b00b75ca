"""``counterweight_rl.compat.roll`` beside ROLL's own function, cut from a checkout."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Optional

import cut
import pytest
import random_batches
import torch
from comparison import METRIC, same_values
from counterweight_rl.compat import roll

pytestmark = pytest.mark.compares("compat.roll.compute_train_infer_correction")

original = cut.definitions(
    "cut_from_roll",
    {
        "roll/configs/base_config.py": (
            *("TrainInferISWeightConfig", "TrainInferFilterConfig", "TrainInferCorrectionConfig"),
        ),
        "roll/utils/functionals.py": ("masked_mean", "masked_sum", "agg_loss"),
        "roll/pipeline/agentic/utils.py": ("compute_segment_masked_mean",),
        "roll/utils/train_infer_corrections.py": (
            *("_compute_all_granularity", "_infer_global_valid_samples_from_mask"),
            *("_infer_global_valid_tokens_from_mask", "compute_train_infer_correction"),
        ),
    },
    torch=torch,
    Literal=Literal,
    Optional=Optional,
    List=list,
    Dict=dict,
    Tuple=tuple,
    dataclass=dataclasses.dataclass,
    field=dataclasses.field,
)


def config(weight: dict[str, Any] | None = None, *filters: dict[str, Any]) -> Any:
    """Returns ROLL's object; what is given is enabled."""
    chosen = {} if weight is None else {"enabled": True, **weight}
    return original.TrainInferCorrectionConfig(
        is_weight=original.TrainInferISWeightConfig(**chosen),
        filters=[original.TrainInferFilterConfig(**{"enabled": True, **one}) for one in filters],
    )


DIFFERENCES = {"ratio_enabled": False, "diff_enabled": True}
CONFIGS: dict[str, Any] = {
    "defaults": config(),
    "weights": config({}),
    "weights without a bound": config({"upper_bound": None}),
    "weights of rows": config({"weight_type": "sequence", "upper_bound": 2.0}),
    "weights of rows' means": config({"weight_type": "geometric", "upper_bound": 1.02}),
    "a bound below 1": config({"upper_bound": 0.9}),
    "filter": config(None, {}),
    "filters off": config({}, {"enabled": False}),
    "filter of rows": config(None, {"agg_type": "sequence", "ratio_low": 0.5, "ratio_high": 2.0}),
    "filter of rows' means": config(
        {}, {"agg_type": "geometric", "ratio_low": 0.97, "ratio_high": 1.03}
    ),
    "differences": config(None, {**DIFFERENCES, "diff_low": -0.05, "diff_high": 0.03}),
    "differences of rows": config(
        None, {**DIFFERENCES, "agg_type": "sequence", "diff_low": -0.3, "diff_high": 0.3}
    ),
    "differences of rows' means": config(
        None, {**DIFFERENCES, "agg_type": "geometric", "diff_low": -0.02, "diff_high": 0.02}
    ),
    "segments": config(
        {"weight_type": "segment", "upper_bound": 1.05},
        {"agg_type": "segment", "ratio_low": 0.95, "ratio_high": 1.05},
        {**DIFFERENCES, "agg_type": "segment", "diff_low": -0.02, "diff_high": 0.02},
    ),
    "all": config(
        {"weight_type": "geometric"},
        {"diff_enabled": True, "diff_low": -0.1, "diff_high": 0.1},
        {"agg_type": "sequence", "ratio_low": 0.3, "ratio_high": 3.0},
        {"agg_type": "token", "ratio_low": 0.5, "ratio_high": 2.0},
    ),
}


def batch(kept: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns mask and log-probs, with 0 where the mask is 0, as ROLL's workers have it."""
    made = random_batches.make(17, mask=torch.int64, kept=kept)
    return made.mask, (made.old * made.mask).to(dtype), (made.rollout * made.mask).to(dtype)


@pytest.mark.parametrize("has_counts", [False, True], ids=["own", "global"])
@pytest.mark.parametrize("kept", ["rows", "empty_row", "none"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_correction_is_rolls_own(name: str, kept: str, has_counts: bool) -> None:
    cfg = CONFIGS[name]
    counts = {"global_valid_samples": 11, "global_valid_tokens": 170} if has_counts else {}
    mask, *log_probs = batch(kept, torch.float32)
    called = original.compute_train_infer_correction(cfg, mask, *log_probs, **counts)
    exact = original.compute_train_infer_correction(cfg, *batch(kept, torch.float64), **counts)
    actual = roll.compute_train_infer_correction(cfg, mask, *log_probs, **counts)
    assert [one.dtype for one in actual[:2]] == [one.dtype for one in called[:2]]
    same_values(actual[0], exact[0], mask)
    assert torch.equal(actual[1] * mask, exact[1] * mask)
    missing = exact[2].keys() - actual[2].keys()
    assert actual[2].keys() <= exact[2].keys()
    assert all(
        one.startswith(("actor/train_infer_ratio_", "actor/train_infer_diff_")) for one in missing
    )
    assert all(one.endswith("_mean@sum") and "_mask_" not in one for one in missing)
    for metric, value in actual[2].items():
        assert value == pytest.approx(exact[2][metric], rel=METRIC["rtol"], abs=METRIC["atol"]), (
            metric
        )
