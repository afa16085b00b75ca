"""SkyRL's ``off_policy_correction_utils``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import random_batches
import torch
from comparison import in_float64, is_refusal, same_metrics, same_numbers, same_values
from counterweight_rl.compat import skyrl as ours
from omegaconf import OmegaConf
from skyrl.backends.skyrl_train.utils import off_policy_correction_utils as original
from skyrl.train.config.config import OffPolicyCorrectionConfig

pytestmark = pytest.mark.filterwarnings("ignore:method.dialect")

TOKEN_TIS = {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 1.3}
OUTLIER = {"outlier_token_is_threshold_low": 0.4, "outlier_token_is_threshold_high": 2.5}
TOKEN_MASK = {"token_mask_is_threshold_low": 0.7, "token_mask_is_threshold_high": 1.4}
GEOMETRIC = {"sequence_mask_metric": "geometric", "geo_mask_low": 0.9, "geo_mask_high": 1.1}
CONFIGS: dict[str, dict[str, Any]] = {
    "off": {},
    "token_tis": TOKEN_TIS,
    "sequence_tis": {"tis_ratio_type": "sequence", "sequence_tis_ratio_clip_high": 1.8},
    "geometric": GEOMETRIC,
    "product": {"sequence_mask_metric": "product"},
    "outlier": OUTLIER,
    "token_mask": TOKEN_MASK,
    "token_tis_geometric": {**TOKEN_TIS, **GEOMETRIC},
    "all": {**TOKEN_TIS, **OUTLIER, **TOKEN_MASK, **GEOMETRIC},
}
LOG_PROBS = (torch.float32, torch.bfloat16)
MASKS = (torch.bool, torch.int64, torch.float32)
FORMS: dict[str, Callable[..., Any]] = {
    "dataclass": OffPolicyCorrectionConfig,
    "omegaconf": lambda **fields: OmegaConf.create(
        dataclasses.asdict(OffPolicyCorrectionConfig(**fields))
    ),
}

applies = pytest.mark.compares("apply_off_policy_correction")
computes = pytest.mark.compares("compute_off_policy_correction")


def apply(function: Callable[..., Any], batch: random_batches.Batch, config: Any) -> Any:
    # The loss of each token is any number; its graph must stay.
    loss = batch.advantages.clone().requires_grad_()
    return function(loss, batch.old, batch.rollout, batch.mask, config)


@applies
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("log_probs", LOG_PROBS, ids=str)
@pytest.mark.parametrize("config", CONFIGS)
def test_apply(
    config: str,
    log_probs: torch.dtype,
    mask: torch.dtype,
    form: str,
    documented: Callable[[str], None],
) -> None:
    batch = random_batches.make(41, log_probs=log_probs, mask=mask, kept="empty_row")
    block = FORMS[form](**CONFIGS[config])
    called = apply(original.apply_off_policy_correction, batch, block)
    exact = apply(original.apply_off_policy_correction, in_float64(batch), block)
    loss, kept, metrics = apply(ours.apply_off_policy_correction, batch, block)
    if kept.dtype != called[1].dtype:
        documented("the mask keeps the dtype that came")
    assert kept.dtype == batch.mask.dtype
    assert torch.equal(kept, exact[1].to(kept.dtype))
    assert loss.requires_grad
    # SkyRL rounds the weights to the dtype of old_log_probs before it multiplies the loss by them.
    same_values(loss.detach(), exact[0].detach(), batch.mask, rounded=log_probs)
    assert loss.dtype == called[0].dtype
    same_numbers(metrics, called[2], exact[2])
    assert set(metrics) == set(called[2])


@computes
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("config", [config for config in CONFIGS if config != "off"])
def test_compute(
    config: str,
    mask: torch.dtype,
    documented: Callable[[str], None],
) -> None:
    batch = random_batches.make(42, mask=mask)
    wide = in_float64(batch)
    block = OffPolicyCorrectionConfig(**CONFIGS[config])
    arguments = (batch.old, batch.rollout, batch.mask, block)
    called = original.compute_off_policy_correction(*arguments)
    exact = original.compute_off_policy_correction(wide.old, wide.rollout, wide.mask, block)
    weights, metrics, kept = ours.compute_off_policy_correction(*arguments)
    assert torch.equal(kept, exact[2].to(kept.dtype))
    assert (weights is None) == (called[0] is None)
    if weights is not None:
        if called[0].shape != weights.shape:
            documented("a row's weight is repeated along the row")
        same_values(weights, exact[0].expand(batch.old.shape), batch.mask)
        assert weights.dtype == called[0].dtype
    same_numbers(metrics, called[1], exact[1])
    assert set(metrics) == set(called[1])


@applies
@pytest.mark.parametrize("config", [config for config in CONFIGS if config != "off"])
def test_nothing_kept(config: str) -> None:
    """The names do not depend on the data: SkyRL reduces metrics over ranks one by one."""
    batch = random_batches.make(43, kept="none")
    block = OffPolicyCorrectionConfig(**CONFIGS[config])
    called = apply(original.apply_off_policy_correction, batch, block)
    loss, kept, metrics = apply(ours.apply_off_policy_correction, batch, block)
    assert not kept.any()
    assert loss.shape == batch.old.shape
    same_metrics(metrics, called[2], called[2])


@applies
@pytest.mark.parametrize("config", [config for config in CONFIGS if config != "off"])
def test_a_mask_that_weighs_tokens(config: str, documented: Callable[[str], None]) -> None:
    """SkyRL's Tinker backend has such masks."""
    batch = random_batches.make(45, mask=torch.float32)
    batch.mask.mul_(torch.rand(batch.mask.shape, generator=torch.Generator().manual_seed(45)))
    block = OffPolicyCorrectionConfig(**CONFIGS[config])
    called = apply(original.apply_off_policy_correction, batch, block)
    with pytest.warns(UserWarning, match="SkyRL's own function"):
        answer = apply(ours.apply_off_policy_correction, batch, block)
    documented("a mask that weighs tokens is corrected by SkyRL's own function, with a warning")
    assert torch.equal(answer[0], called[0])
    assert torch.equal(answer[1], called[1])
    assert answer[2] == called[2]


OFF: dict[str, Callable[[random_batches.Batch], Any]] = {
    "a batch": lambda b: (b.advantages, b.old, b.rollout, b.mask),
    "no old log-probs": lambda b: (b.advantages, None, b.rollout, b.mask),
    "no mask": lambda b: (b.advantages, b.old, b.rollout, None),
    "NaN": lambda b: (b.advantages, b.old, b.rollout * float("nan"), b.mask),
    "weights for a mask": lambda b: (b.advantages, b.old, b.rollout, b.mask * 0.5),
}


@applies
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", OFF)
def test_nothing_switched_on(given: str, form: str) -> None:
    """All arguments are returned unchanged."""
    arguments = OFF[given](random_batches.make(44))

    def passes_through(function: Callable[..., Any]) -> None:
        loss, mask, metrics = function(*arguments, FORMS[form]())
        assert loss is arguments[0]
        assert mask is arguments[3]
        assert metrics == {}

    passes_through(original.apply_off_policy_correction)
    passes_through(ours.apply_off_policy_correction)


@applies
def test_no_rollout_log_probs() -> None:
    batch = random_batches.make(45)
    block = OffPolicyCorrectionConfig(**TOKEN_TIS)
    for function in (original.apply_off_policy_correction, ours.apply_off_policy_correction):
        loss, mask, metrics = function(batch.advantages, batch.old, None, batch.mask, block)
        assert loss is batch.advantages
        assert mask is batch.mask
        assert metrics == {}


@applies
@pytest.mark.parametrize("field", ["tis_ratio_type", "sequence_mask_metric"])
def test_wrong_settings(field: str) -> None:
    batch = random_batches.make(46)
    block = OffPolicyCorrectionConfig(**{field: "row"})
    with pytest.raises(ValueError):
        apply(original.apply_off_policy_correction, batch, block)
    with pytest.raises(Exception) as refusal:
        apply(ours.apply_off_policy_correction, batch, block)
    is_refusal(refusal.value)
    assert isinstance(refusal.value, ValueError)


@applies
def test_nan(documented: Callable[[str], None]) -> None:
    batch = random_batches.make(47)
    row, column = batch.mask.nonzero()[0].tolist()
    batch.rollout[row, column] = float("nan")
    block = OffPolicyCorrectionConfig(**TOKEN_TIS)
    apply(original.apply_off_policy_correction, batch, block)
    documented("NaN or infinity where the mask is 1 is refused")
    with pytest.raises(Exception) as refusal:
        apply(ours.apply_off_policy_correction, batch, block)
    is_refusal(refusal.value)
