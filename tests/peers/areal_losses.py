"""AReaL's losses, cut from a release or a checkout; batches and comparisons for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import cut
import pytest
import random_batches
import releases
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, GRADIENT_RTOL, LOSS, METRIC, WEIGHT

# 1.0.4, the newest on the index, has the formulas of 2.0.0 without CISPO; in its statistics ratios
# and clips are of kept tokens, and some counts are missing.
AT_HEAD = not releases.RELEASE
_OF_HEAD = ("compute_binary_kl_divergence", "cispo_loss_fn") if AT_HEAD else ()

original = cut.definitions(
    "cut_from_areal",
    {
        "areal/api/cli_args.py": ("RejectionSamplingConfig",),
        "areal/utils/data.py": ("KLEstimator",),
        "areal/utils/functional/functional.py": (
            *("RejectionSamplingResult", "_check_bounds", "apply_rejection_sampling"),
            *("_compute_sequence_level_ratio_and_advantages", "ppo_actor_loss_fn", "sapo_loss_fn"),
            *_OF_HEAD,
        ),
    },
    torch=torch,
    Any=Any,
    dataclass=dataclasses.dataclass,
    field=dataclasses.field,
)

SEQUENCE = {"importance_sampling_level": "sequence"}
REJECTIONS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "defaults": {},
    "tokens": {"upper": 1.3, "lower": 0.8},
    "tokens, clamped": {"action": "clamp", "upper": 1.3, "lower": 0.8},
    "tokens, clamped from above": {"action": "clamp", "upper": 1.2},
    "rows": {"level": "sequence", "upper": 1.03, "lower": 0.97},
    "rows, clamped": {"level": "sequence", "action": "clamp", "upper": 1.03, "lower": 0.97},
    "rows by product": {"level": "sequence", "agg": "sum", "upper": 1.5, "lower": 0.7},
    "rows by the largest": {"level": "sequence", "agg": "max", "upper": 2.0},
    "k1": {"metric": "kl_k1", "upper": 0.3, "lower": -0.3},
    "k2 of rows": {"metric": "kl_k2", "level": "sequence", "upper": 0.05},
    "k3 of rows": {"metric": "kl_k3", "level": "sequence", "upper": 0.05},
}
COUNTS = {"n_total_tokens", "n_valid_tokens", "n_masked_tokens", "masked_token_ratio"}
OF_KEPT = {"importance_weight", "clip_mask", "dual_clip_mask"}
DRAWS = ("plain", "negative", "empty_row", "none", "packed", "on_policy")


def arguments(draw: str, *, by_row: bool) -> dict[str, torch.Tensor]:
    """Returns a batch: "plain" has an advantage for each token, or with ``by_row`` of each row."""
    kept = draw if draw in ("empty_row", "none") else "rows"
    batch = random_batches.make(31, mask=torch.bool, kept=kept)
    advantages = batch.advantages
    if by_row:
        advantages = random_batches.per_row(advantages).expand_as(advantages).clone()
    if draw == "negative":
        advantages = -advantages.abs()
    given = {
        "logprobs": batch.old.clone() if draw == "on_policy" else batch.current,
        "proximal_logprobs": batch.old,
        "old_logprobs": batch.rollout,
        "advantages": advantages,
        "loss_mask": batch.mask,
    }
    if draw == "packed":
        lengths = torch.tensor([1, 7, 0, 23, 40, 43])
        assert lengths.sum() == batch.mask.numel()
        given = {name: one.reshape(-1) for name, one in given.items()}
        starts = given["cu_seqlens"] = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        if by_row:
            sizes = starts.diff()
            given["advantages"] = given["advantages"][:6].repeat_interleave(sizes)
    return given


def answer(function: Any, given: dict[str, Any]) -> tuple[Any, torch.Tensor, dict[str, Any]]:
    given = {**given, "logprobs": given["logprobs"].clone().requires_grad_()}
    loss, stat = function(**given)
    loss.backward()
    return loss.item(), given["logprobs"].grad, stat


def in_double(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: one.double() if one.is_floating_point() else one for name, one in given.items()}


def same(actual: Any, expected: Any, mask: torch.Tensor, *, has_ties: bool = False) -> None:
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=LOSS["atol"])
    if not has_ties:
        atol = GRADIENT_ATOL_OF_LARGEST * expected[1].abs().max().item()
        torch.testing.assert_close(
            actual[1].double()[mask], expected[1][mask], rtol=GRADIENT_RTOL, atol=atol
        )
    assert not actual[1][~mask].any()
    assert set(actual[2]) == set(expected[2]) | (set() if AT_HEAD else COUNTS & set(actual[2]))
    for name, value in expected[2].items():
        ours = actual[2][name]
        if not AT_HEAD and name in OF_KEPT:
            ours = ours.masked_fill(expected[2]["importance_weight"] == 0, 0)
        if not isinstance(value, torch.Tensor):
            assert ours == pytest.approx(value, rel=METRIC["rtol"], abs=METRIC["atol"]), name
            continue
        if value.dtype == torch.bool:
            assert torch.equal(ours, value), name
            continue
        tolerance = WEIGHT if name == "behave_imp_weight" else METRIC
        torch.testing.assert_close(
            ours.double()[mask], value.double()[mask], rtol=tolerance["rtol"], atol=METRIC["atol"]
        )
