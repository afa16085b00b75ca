"""verl's rollout correction: ``verl.trainer.ppo.rollout_corr_helper``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import random_batches
import torch
from comparison import in_float64, is_refusal, same_metrics, same_values
from counterweight_rl.compat import verl as ours
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo import rollout_corr_helper as original

pytestmark = pytest.mark.filterwarnings("ignore:method.dialect")

CONFIGS: dict[str, dict[str, Any]] = {
    "off": {},
    "token_tis": {"rollout_is": "token", "rollout_is_threshold": 1.3},
    "sequence_tis": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "icepop": {"rollout_is": "token", "rollout_is_threshold": "0.7_1.4"},
    "normalized": {
        "rollout_is": "token",
        "rollout_is_threshold": 1.5,
        "rollout_is_batch_normalize": True,
    },
    "geometric": {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.9_1.1"},
    "several": {"rollout_rs": "token_k1,seq_max_k3", "rollout_rs_threshold": "0.4_2.5,0.4"},
    "both": {
        "rollout_is": "sequence",
        "rollout_is_threshold": 5.0,
        "rollout_rs": "seq_mean_k3",
        "rollout_rs_threshold": 0.05,
    },
}
LOG_PROBS = (torch.float32, torch.bfloat16)
MASKS = (torch.bool, torch.int64, torch.float32)
CORRECTION = "compute_rollout_correction_and_rejection_mask"
WEIGHTS = "rollout_is_weights"
ADD_TO_BATCH = "compute_rollout_correction_and_add_to_batch"

corrects = pytest.mark.compares(CORRECTION)


def correct(function: Callable[..., Any], batch: random_batches.Batch, **settings: Any) -> Any:
    return function(batch.old, batch.rollout, batch.mask, **settings)


def compare(batch: random_batches.Batch, **settings: Any) -> tuple[torch.dtype, torch.dtype]:
    """Compares all but the dtype of the weights, and returns theirs and ours."""
    theirs = original.compute_rollout_correction_and_rejection_mask
    called = correct(theirs, batch, **settings)
    exact = correct(theirs, in_float64(batch), **settings)
    holder, mask, metrics = correct(
        ours.compute_rollout_correction_and_rejection_mask, batch, **settings
    )
    assert type(holder) is type(called[0])
    assert mask.dtype == called[1].dtype
    assert torch.equal(mask, exact[1].to(mask.dtype))
    same_metrics(metrics, called[2], exact[2])
    if holder is None:
        return torch.float32, torch.float32
    assert set(holder.batch.keys()) == set(called[0].batch.keys())
    weights = holder.batch[WEIGHTS]
    same_values(weights, exact[0].batch[WEIGHTS], batch.mask)
    return called[0].batch[WEIGHTS].dtype, weights.dtype


@corrects
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("log_probs", LOG_PROBS, ids=str)
@pytest.mark.parametrize("config", CONFIGS)
def test_correction(config: str, log_probs: torch.dtype, mask: torch.dtype) -> None:
    kept = "empty_row" if config in ("several", "sequence_tis") else "rows"
    batch = random_batches.make(11, log_probs=log_probs, mask=mask, kept=kept)
    theirs, mine = compare(batch, **CONFIGS[config])
    assert mine == theirs


@corrects
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("wider", ["old", "rollout"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_correction_of_two_dtypes(level: str, wider: str, mask: torch.dtype) -> None:
    narrow = random_batches.make(12, log_probs=torch.bfloat16, mask=mask)
    wide = random_batches.make(12, mask=mask)
    batch = random_batches.Batch(
        old=wide.old if wider == "old" else narrow.old,
        rollout=wide.rollout if wider == "rollout" else narrow.rollout,
        current=wide.current,
        advantages=wide.advantages,
        mask=wide.mask,
    )
    theirs, mine = compare(batch, rollout_is=level, rollout_is_threshold=2.0)
    assert mine == theirs


BLOCKS = {
    "mapping": lambda: dict(CONFIGS["both"]),
    "omegaconf": lambda: OmegaConf.create(CONFIGS["both"]),
    "dataclass": lambda: RolloutCorrectionConfig(**CONFIGS["both"]),
    "preset": lambda: RolloutCorrectionConfig.decoupled_geo_rs_token_tis(rs_threshold="0.9_1.1"),
}


@pytest.mark.compares(ADD_TO_BATCH)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("block", BLOCKS)
def test_add_to_batch(block: str, mask: torch.dtype) -> None:
    def corrected(function: Callable[..., Any], batch: random_batches.Batch) -> Any:
        names = {
            "old_log_probs": batch.old,
            "rollout_log_probs": batch.rollout,
            "response_mask": batch.mask,
        }
        return function(DataProto.from_dict(tensors=names), BLOCKS[block]())

    batch = random_batches.make(13, mask=mask)
    called, called_metrics = corrected(original.compute_rollout_correction_and_add_to_batch, batch)
    exact, exact_metrics = corrected(
        original.compute_rollout_correction_and_add_to_batch, in_float64(batch)
    )
    actual, metrics = corrected(ours.compute_rollout_correction_and_add_to_batch, batch)
    assert type(actual) is DataProto
    assert set(actual.batch.keys()) == set(called.batch.keys())
    kept = actual.batch["response_mask"]
    assert kept.dtype == called.batch["response_mask"].dtype
    assert torch.equal(kept, exact.batch["response_mask"].to(kept.dtype))
    same_metrics(metrics, called_metrics, exact_metrics)
    weights = actual.batch[WEIGHTS]
    assert weights.dtype == called.batch[WEIGHTS].dtype
    same_values(weights, exact.batch[WEIGHTS], batch.mask)


WRONG: dict[str, dict[str, Any]] = {
    "level": {"rollout_is": "row"},
    "no level": {"rollout_is": ""},
    "boolean bound": {"rollout_is": "token", "rollout_is_threshold": True},
    "listed bound": {"rollout_is": "token", "rollout_is_threshold": [2.0]},
    "empty bound": {"rollout_is": "token", "rollout_is_threshold": ""},
    "negative bound": {"rollout_is": "token", "rollout_is_threshold": -1.0},
    "crossed bounds": {"rollout_is": "token", "rollout_is_threshold": "2_0.5"},
    "option": {"rollout_rs": "token_k9", "rollout_rs_threshold": 1.0},
    "no threshold": {"rollout_rs": "token_k1"},
    "two for k3": {"rollout_rs": "token_k3", "rollout_rs_threshold": "0.5_2"},
    "no number": {"rollout_rs": "token_k3", "rollout_rs_threshold": "abc"},
    "too many": {"rollout_rs": "token_k3", "rollout_rs_threshold": "1,2"},
    "reciprocal of 0": {"rollout_rs": "token_k1", "rollout_rs_threshold": 0},
}


@corrects
@pytest.mark.parametrize("wrong", [*WRONG, "nothing kept"])
def test_wrong_settings(wrong: str, documented: Callable[[str], None]) -> None:
    batch = random_batches.make(14, kept="none" if wrong == "nothing kept" else "rows")
    settings = WRONG.get(wrong, {})
    with pytest.raises(Exception) as theirs:
        correct(original.compute_rollout_correction_and_rejection_mask, batch, **settings)
    with pytest.raises(Exception) as refusal:
        correct(ours.compute_rollout_correction_and_rejection_mask, batch, **settings)
    is_refusal(refusal.value)
    if isinstance(theirs.value, ValueError):
        assert isinstance(refusal.value, ValueError)
    else:
        documented("a wrong setting is an InvalidRequestError whatever the original raises")


@corrects
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite(number: float, documented: Callable[[str], None]) -> None:
    batch = random_batches.make(15)
    row, column = batch.mask.nonzero()[0].tolist()
    batch.rollout[row, column] = number
    correct(original.compute_rollout_correction_and_rejection_mask, batch, rollout_is="token")
    documented("NaN or infinity where the mask is 1 is refused")
    with pytest.raises(Exception) as refusal:
        correct(ours.compute_rollout_correction_and_rejection_mask, batch, rollout_is="token")
    is_refusal(refusal.value)


@corrects
@pytest.mark.parametrize("config", CONFIGS)
def test_masked_positions_are_never_read(config: str, documented: Callable[[str], None]) -> None:
    clean = random_batches.make(16)
    documented("what stands at masked positions has no effect")
    dirty = random_batches.make(16)
    for tensor in (dirty.old, dirty.rollout):
        tensor[dirty.mask == 0] = float("nan")
    exact = correct(
        original.compute_rollout_correction_and_rejection_mask, in_float64(clean), **CONFIGS[config]
    )
    holder, mask, metrics = correct(
        ours.compute_rollout_correction_and_rejection_mask, dirty, **CONFIGS[config]
    )
    assert torch.equal(mask, exact[1].to(mask.dtype))
    same_metrics(metrics, exact[2], exact[2])
    if holder is not None:
        weights = holder.batch[WEIGHTS]
        assert (weights[clean.mask == 0] == 0).all()
        same_values(weights, exact[0].batch[WEIGHTS], clean.mask)
