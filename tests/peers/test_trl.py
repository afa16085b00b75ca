"""TRL's GRPOTrainer: its importance-sampling ratio and its off-policy mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import random_batches
import releases
import torch
import trl_inline
from comparison import in_float64, is_refusal, same_metrics, same_values
from counterweight_rl.compat import trl as ours
from trl import GRPOTrainer

pytestmark = pytest.mark.filterwarnings("ignore:method.dialect")

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "below": (None, 1.4),
    "above": (0.7, None),
    "both": (0.7, 1.4),
}
LOG_PROBS = (torch.float32, torch.bfloat16)
MASKS = (torch.int64, torch.float32)
KEPT = ("rows", "empty_row")

ratio = pytest.mark.compares("vllm_importance_sampling_ratio")
mask_of_rows = pytest.mark.compares("get_off_policy_mask")


def settings(mode: str, bounds: str) -> dict[str, Any]:
    low, high = BOUNDS[bounds]
    return {
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_min": low,
        "vllm_importance_sampling_clip_max": high,
    }


def compare(batch: random_batches.Batch, mode: str, bounds: str) -> tuple[torch.dtype, torch.dtype]:
    """Compares all but the dtype of the ratio, and returns theirs and ours."""
    fields = settings(mode, bounds)
    called, called_metrics = trl_inline.ratio(batch.old, batch.rollout, batch.mask, **fields)
    wide = in_float64(batch)
    exact, exact_metrics = trl_inline.ratio(wide.old, wide.rollout, wide.mask, **fields)
    actual, metrics = ours.vllm_importance_sampling_ratio(
        batch.old, batch.rollout, batch.mask, **fields
    )
    # The bounds include 1, so masked positions and empty rows are compared too.
    same_values(actual, exact, torch.ones_like(actual))
    same_metrics(metrics, called_metrics, exact_metrics)
    return called.dtype, actual.dtype


@ratio
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("log_probs", LOG_PROBS, ids=str)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("mode", MODES)
def test_ratio(
    mode: str,
    bounds: str,
    log_probs: torch.dtype,
    mask: torch.dtype,
    kept: str,
) -> None:
    batch = random_batches.make(31, log_probs=log_probs, mask=mask, kept=kept)
    theirs, mine = compare(batch, mode, bounds)
    assert mine == theirs


@ratio
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wider", ["old", "sampling"])
def test_ratio_of_two_dtypes(wider: str, mode: str) -> None:
    narrow = random_batches.make(32, log_probs=torch.bfloat16, mask=torch.int64)
    wide = random_batches.make(32, mask=torch.int64)
    batch = random_batches.Batch(
        old=wide.old if wider == "old" else narrow.old,
        rollout=wide.rollout if wider == "sampling" else narrow.rollout,
        current=wide.current,
        advantages=wide.advantages,
        mask=wide.mask,
    )
    theirs, mine = compare(batch, mode, "both")
    assert mine == theirs


@ratio
@pytest.mark.parametrize("mode", MODES)
def test_nothing_kept(mode: str) -> None:
    compare(random_batches.make(33, mask=torch.int64, kept="none"), mode, "both")


@ratio
def test_no_such_mode() -> None:
    batch = random_batches.make(34)
    fields = settings("row_mask", "both")
    with pytest.raises(ValueError):
        trl_inline.ratio(batch.old, batch.rollout, batch.mask, **fields)
    with pytest.raises(Exception) as refusal:
        ours.vllm_importance_sampling_ratio(batch.old, batch.rollout, batch.mask, **fields)
    is_refusal(refusal.value)
    assert isinstance(refusal.value, ValueError)


def unknown(batch: random_batches.Batch) -> None:
    """Makes the sampling log-prob of one kept token NaN, as TRL does with tokens that vLLM
    omits."""
    row, column = batch.mask.nonzero()[0].tolist()
    batch.rollout[row, column] = float("nan")


@ratio
@pytest.mark.parametrize("mode", MODES)
def test_ratio_of_an_unknown_token(mode: str, documented: Callable[[str], None]) -> None:
    batch = random_batches.make(35, mask=torch.int64)
    unknown(batch)
    if releases.is_at_least("1.11.0"):
        compare(batch, mode, "both")
        return
    fields = settings(mode, "both")
    assert trl_inline.ratio(batch.old, batch.rollout, batch.mask, **fields)[0].isnan().any()
    documented("NaN or infinity where the mask is 1 is refused")
    with pytest.raises(Exception) as refusal:
        ours.vllm_importance_sampling_ratio(batch.old, batch.rollout, batch.mask, **fields)
    is_refusal(refusal.value)


def off_policy(
    function: Callable[..., torch.Tensor],
    batch: random_batches.Batch,
    threshold: float,
    advantages: torch.Tensor,
) -> torch.Tensor:
    return function(
        advantages=advantages,
        per_token_logps=batch.current.clone().requires_grad_(),
        sampling_per_token_logps=batch.rollout,
        mask=batch.mask,
        off_policy_threshold=threshold,
    )


@mask_of_rows
@pytest.mark.parametrize("advantages", ["rows", "tokens"])
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("threshold", [0.0, 0.02, 0.5])
def test_off_policy_mask(threshold: float, kept: str, mask: torch.dtype, advantages: str) -> None:
    batch = random_batches.make(36, mask=mask, kept=kept)
    given = batch.advantages if advantages == "tokens" else random_batches.per_row(batch.advantages)
    called = off_policy(GRPOTrainer.get_off_policy_mask, batch, threshold, given)
    exact = off_policy(
        GRPOTrainer.get_off_policy_mask, in_float64(batch), threshold, given.double()
    )
    actual = off_policy(ours.get_off_policy_mask, batch, threshold, given)
    assert actual.dtype == called.dtype
    assert actual.shape == called.shape
    where = batch.mask != 0 if advantages == "tokens" else torch.ones_like(actual, dtype=torch.bool)
    assert torch.equal(actual[where], exact.to(actual.dtype)[where])


@mask_of_rows
def test_off_policy_mask_of_an_unknown_token(documented: Callable[[str], None]) -> None:
    batch = random_batches.make(37)
    unknown(batch)
    given = -random_batches.per_row(batch.advantages).abs()
    theirs = off_policy(GRPOTrainer.get_off_policy_mask, batch, 0.5, given)
    if releases.is_at_least("1.11.0"):
        assert torch.equal(off_policy(ours.get_off_policy_mask, batch, 0.5, given), theirs)
        return
    documented("NaN or infinity where the mask is 1 is refused")
    with pytest.raises(Exception) as refusal:
        off_policy(ours.get_off_policy_mask, batch, 0.5, given)
    is_refusal(refusal.value)
