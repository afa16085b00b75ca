"""``counterweight_rl.compat.areal.ppo_actor_loss_fn`` beside AReaL's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import pytest
from areal_losses import (
    DRAWS,
    REJECTIONS,
    SEQUENCE,
    answer,
    arguments,
    in_double,
    original,
    same,
)
from counterweight_rl.compat import areal

pytestmark = pytest.mark.compares("compat.areal.ppo_actor_loss_fn")

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "clip higher": {"eps_clip": 0.1, "eps_clip_higher": 0.3},
    "dual clip": {"eps_clip": 0.1, "c_clip": 1.15},
    "no clip": {"eps_clip": 0.0},
    "sequence": {**SEQUENCE, "eps_clip": 0.01},
    "sequence, dual clip": {**SEQUENCE, "eps_clip": 0.01, "c_clip": 1.02},
}


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
    # AReaL computes the ratio that it rejects by in float32.
    options = {**settings, "rejection_sampling": config}
    expected = answer(original.ppo_actor_loss_fn, {**in_double(given), **options})
    actual = answer(areal.ppo_actor_loss_fn, {**given, **options})
    has_ties = name == "no clip" and draw == "on_policy"
    if has_ties:
        documented("gradient where a ratio is at a clip bound")
    same(actual, expected, given["loss_mask"], has_ties=has_ties)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rejection", REJECTIONS)
def test_advantages_of_tokens_are_averaged(rejection: str, draw: str) -> None:
    """With the level "sequence", over the tokens that are kept."""
    given = arguments(draw, by_row=False)
    rejects = REJECTIONS[rejection]
    config = None if rejects is None else original.RejectionSamplingConfig(**rejects)
    options = {**SEQUENCE, "eps_clip": 0.01, "c_clip": 1.02, "rejection_sampling": config}
    expected = answer(original.ppo_actor_loss_fn, {**in_double(given), **options})
    actual = answer(areal.ppo_actor_loss_fn, {**given, **options})
    same(actual, expected, given["loss_mask"])


def test_what_the_dialect_lacks_is_refused(documented: Callable[[str], None]) -> None:
    documented("clamp of sums")
    given = {**arguments("plain", by_row=False), "eps_clip": 0.2}
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
