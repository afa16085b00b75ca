"""Defaults of NeMo-RL: an empty block, and its own ClippedPGLossConfig, answer as its loss."""

from __future__ import annotations

from typing import Any

import defaults
import pytest
from nemo_rl_losses import CORRECTED, DRAWS, SEQUENCES, TOKENS, answer, batch, clipped_pg, same

pytestmark = pytest.mark.compares("ClippedPGLossFn")

# Fields beside the defaults, which have a KL penalty.
SAID: dict[str, dict[str, Any]] = {"nothing": {}, "correction": CORRECTED}
SAID["dual clip"] = {"ratio_clip_c": 3.0}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", SAID)
def test_loss(name: str, draw: str) -> None:
    said = SAID[name]
    expected = answer(clipped_pg(**said), draw, exact=True)
    current, data = batch(draw)
    result = defaults.answer(
        {
            **said,
            "global_valid_seqs": SEQUENCES.item(),
            "global_valid_toks": TOKENS.item(),
        },
        current_log_probs=current.detach(),
        old_log_probs=data["prev_logprobs"][:, 1:],
        rollout_log_probs=data["generation_logprobs"][:, 1:],
        ref_log_probs=None if said == CORRECTED else data["reference_policy_logprobs"][:, 1:],
        advantages=data["advantages"][:, 1:],
        response_mask=data["token_mask"][:, 1:] * data["sample_mask"].unsqueeze(-1),
    )
    same((result.loss, result.gradient.double()), expected)
