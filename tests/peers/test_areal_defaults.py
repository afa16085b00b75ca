"""Defaults of AReaL: an empty block, and its own PPOActorConfig, answer as its losses."""

from __future__ import annotations

from typing import Any

import defaults
import pytest
import releases
from areal_losses import answer, arguments, in_double, original, same

pytestmark = [
    pytest.mark.compares("ppo_actor_loss_fn"),
    pytest.mark.skipif(bool(releases.RELEASE), reason="its defaults are those of a checkout"),
]


@pytest.mark.parametrize("draw", ["plain", "negative", "empty_row", "packed"])
@pytest.mark.parametrize("rejects", [None, {}], ids=["nothing", "rejection_sampling"])
def test_ppo(rejects: dict[str, Any] | None, draw: str) -> None:
    given = arguments(draw, by_row=False)
    own = defaults.block()
    said: dict[str, Any] = {}
    rejection = None
    if rejects is not None:
        rejection = original.RejectionSamplingConfig(**rejects)
        said = {"use_decoupled_loss": True, "rejection_sampling": rejects}
    options = {name: own[name] for name in ("eps_clip", "eps_clip_higher", "c_clip")}
    theirs = dict(given)
    if rejects is None:
        # The actor passes the sampler's log-probs as those of the proximal policy.
        theirs["proximal_logprobs"] = given["old_logprobs"]
    options["rejection_sampling"] = rejection
    expected = answer(original.ppo_actor_loss_fn, {**in_double(theirs), **options})
    compare(said, given, expected)


@pytest.mark.parametrize("draw", ["plain", "negative"])
def test_sapo(draw: str) -> None:
    given = arguments(draw, by_row=False)
    own = defaults.block()
    theirs = {name: one for name, one in given.items() if name != "proximal_logprobs"}
    options = {"tau_pos": own["sapo_tau_pos"], "tau_neg": own["sapo_tau_neg"]}
    expected = answer(original.sapo_loss_fn, {**in_double(theirs), **options})
    compare({"use_sapo_loss": True}, given, expected)


def compare(said: dict[str, Any], given: dict[str, Any], expected: Any) -> None:
    starts = given.get("cu_seqlens")
    decoupled = said.get("use_decoupled_loss", False)
    result = defaults.answer(
        said,
        current_log_probs=given["logprobs"],
        old_log_probs=given["proximal_logprobs"] if decoupled else None,
        rollout_log_probs=given["old_logprobs"],
        advantages=given["advantages"],
        response_mask=given["loss_mask"],
        sequence_lengths=None if starts is None else starts.diff().tolist(),
    )
    same((result.loss, result.gradient, {}), (*expected[:2], {}), given["loss_mask"])
