"""``counterweight_rl.compat.areal`` beside AReaL's own functions, cut from a checkout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import cut
import pytest
import random_batches
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, GRADIENT_RTOL, LOSS, METRIC, WEIGHT
from counterweight_rl.compat import areal

pytestmark = pytest.mark.compares("compat.areal.ppo_actor_loss_fn")

original = cut.definitions(
    "cut_from_areal",
    {
        "areal/api/cli_args.py": ("RejectionSamplingConfig",),
        "areal/utils/data.py": ("KLEstimator",),
        "areal/utils/functional/functional.py": (
            *("RejectionSamplingResult", "_check_bounds", "apply_rejection_sampling"),
            *("_compute_sequence_level_ratio_and_advantages", "compute_binary_kl_divergence"),
            "ppo_actor_loss_fn",
        ),
    },
    torch=torch,
    Any=Any,
    dataclass=dataclasses.dataclass,
    field=dataclasses.field,
)

SEQUENCE = {"importance_sampling_level": "sequence"}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "clip higher": {"eps_clip": 0.1, "eps_clip_higher": 0.3},
    "dual clip": {"eps_clip": 0.1, "c_clip": 1.15},
    "no clip": {"eps_clip": 0.0},
    "sequence": {**SEQUENCE, "eps_clip": 0.01},
    "sequence, dual clip": {**SEQUENCE, "eps_clip": 0.01, "c_clip": 1.02},
}
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


def same(actual: Any, expected: Any, mask: torch.Tensor, *, has_ties: bool = False) -> None:
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=LOSS["atol"])
    if not has_ties:
        atol = GRADIENT_ATOL_OF_LARGEST * expected[1].abs().max().item()
        torch.testing.assert_close(
            actual[1].double()[mask], expected[1][mask], rtol=GRADIENT_RTOL, atol=atol
        )
    assert not actual[1][~mask].any()
    assert list(actual[2]) == list(expected[2])
    for name, value in expected[2].items():
        ours = actual[2][name]
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


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rejection", REJECTIONS)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_loss_is_areals_own(
    documented: Callable[[str], None], name: str, rejection: str, draw: str
) -> None:
    settings = {"eps_clip": 0.2, **SETTINGS[name]}
    given = arguments(draw, by_row="importance_sampling_level" in settings)
    rejects = REJECTIONS[rejection]
    config = None if rejects is None else original.RejectionSamplingConfig(**rejects)
    double = {name: one.double() if one.is_floating_point() else one for name, one in given.items()}
    # AReaL computes the ratio that it rejects by in float32.
    options = {**settings, "rejection_sampling": config}
    expected = answer(original.ppo_actor_loss_fn, {**double, **options})
    actual = answer(areal.ppo_actor_loss_fn, {**given, **options})
    has_ties = name == "no clip" and draw == "on_policy"
    if has_ties:
        documented("gradient where a ratio is at a clip bound")
    same(actual, expected, given["loss_mask"], has_ties=has_ties)


def test_what_the_dialect_lacks_is_refused(documented: Callable[[str], None]) -> None:
    documented("importance_sampling_level sequence with advantages of tokens; clamp of sums")
    given = {**arguments("plain", by_row=False), "eps_clip": 0.2}
    with pytest.raises(cw.InvalidRequestError, match="advantages"):
        areal.ppo_actor_loss_fn(**given, importance_sampling_level="sequence")
    clamp = original.RejectionSamplingConfig(level="sequence", action="clamp", agg="sum")
    with pytest.raises(cw.InvalidRequestError, match="clamp"):
        areal.ppo_actor_loss_fn(**given, rejection_sampling=clamp)


@pytest.mark.parametrize(
    "wrong",
    [{"importance_sampling_level": "row"}, {"c_clip": 1.0}, {"c_clip": 0.5}],
    ids=str,
)
def test_what_areal_refuses_is_refused(wrong: dict[str, Any]) -> None:
    given = {**arguments("plain", by_row=True), "eps_clip": 0.2, **wrong}
    with pytest.raises((ValueError, AssertionError)):
        original.ppo_actor_loss_fn(**given)
    with pytest.raises(cw.InvalidRequestError):
        areal.ppo_actor_loss_fn(**given)


@pytest.mark.parametrize(
    "changes",
    [{"importance_sampling_level": "sequence"}, {"rejection_sampling": "sequence"}],
    ids=str,
)
def test_packed_sequences_need_their_starts(changes: dict[str, Any]) -> None:
    given = {**arguments("packed", by_row=True), "eps_clip": 0.2, **changes}
    del given["cu_seqlens"]
    if "rejection_sampling" in changes:
        given["rejection_sampling"] = original.RejectionSamplingConfig(level="sequence")
    for function in (original.ppo_actor_loss_fn, areal.ppo_actor_loss_fn):
        with pytest.raises(ValueError, match=r"^cu_seqlens is required"):
            function(**given)
