"""``sapo_loss_fn`` and ``cispo_loss_fn`` of ``counterweight_rl.compat.areal`` beside AReaL's own."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import pytest
from areal_losses import (
    AT_HEAD,
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

needs_cispo = pytest.mark.skipif(not AT_HEAD, reason="1.0.4 has no CISPO")

SAPO: dict[str, dict[str, Any]] = {
    "defaults": {"tau_pos": 1.0, "tau_neg": 1.05},
    "sharp": {"tau_pos": 5.0, "tau_neg": 0.5},
    "sequence": {**SEQUENCE, "tau_pos": 1.0, "tau_neg": 1.05},
}
CISPO: dict[str, dict[str, Any]] = {
    "paper": {"eps_clip": 1.0, "eps_clip_higher": 4.0},
    "narrow": {"eps_clip": 0.1, "eps_clip_higher": 0.15},
}


@pytest.mark.compares("compat.areal.sapo_loss_fn")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", SAPO)
def test_sapo_is_areals_own(name: str, draw: str) -> None:
    settings = SAPO[name]
    given = arguments(draw, by_row=False)
    del given["proximal_logprobs"]
    expected = answer(original.sapo_loss_fn, {**in_double(given), **settings})
    actual = answer(areal.sapo_loss_fn, {**given, **settings})
    same(actual, expected, given["loss_mask"])


@needs_cispo
@pytest.mark.compares("compat.areal.cispo_loss_fn")
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rejection", REJECTIONS)
@pytest.mark.parametrize("name", CISPO)
def test_cispo_is_areals_own(name: str, rejection: str, draw: str) -> None:
    given = arguments(draw, by_row=False)
    rejects = REJECTIONS[rejection]
    config = None if rejects is None else original.RejectionSamplingConfig(**rejects)
    options = {**CISPO[name], "rejection_sampling": config}
    if config is None:
        del given["old_logprobs"]
    expected = answer(original.cispo_loss_fn, {**in_double(given), **options})
    actual = answer(areal.cispo_loss_fn, {**given, **options})
    same(actual, expected, given["loss_mask"])


@pytest.mark.compares("compat.areal.sapo_loss_fn")
@pytest.mark.parametrize(
    "wrong", [{"tau_pos": 0.0}, {"tau_neg": -1.0}, {"importance_sampling_level": "row"}], ids=str
)
def test_what_sapo_refuses_is_refused(wrong: dict[str, Any]) -> None:
    given = {**arguments("plain", by_row=True), **SAPO["defaults"], **wrong}
    del given["proximal_logprobs"]
    with pytest.raises(ValueError):
        original.sapo_loss_fn(**given)
    with pytest.raises(cw.InvalidRequestError):
        areal.sapo_loss_fn(**given)


@needs_cispo
@pytest.mark.compares("compat.areal.cispo_loss_fn")
@pytest.mark.parametrize("higher", [None, 0.0, -0.2])
def test_what_cispo_refuses_is_refused(higher: float | None) -> None:
    given = {**arguments("plain", by_row=False), "eps_clip": 0.2, "eps_clip_higher": higher}
    with pytest.raises(ValueError):
        original.cispo_loss_fn(**given)
    with pytest.raises(cw.InvalidRequestError, match="eps_clip_higher"):
        areal.cispo_loss_fn(**given)
