"""Defaults of prime-rl: an empty block, and its own DefaultLossConfig, answer as its loss."""

from __future__ import annotations

import defaults
import pytest
import torch
from prime_rl.configs.trainer import DefaultLossConfig, IPOLossConfig
from test_prime_rl_hook import LENGTHS, SCALE, answer, same, sequences

pytestmark = pytest.mark.compares("default_loss_fn")


@pytest.mark.parametrize("kind", ["default", "ipo"])
def test_loss(kind: str) -> None:
    """The sequences have advantages of both signs."""
    data = sequences()
    advantages = torch.cat(data["advantages"])
    assert (advantages < 0).any()
    assert (advantages > 0).any()
    arguments = {
        "current_log_probs": torch.cat(data["trainer"]).detach(),
        "rollout_log_probs": torch.cat(data["inference"]),
        "advantages": advantages,
        "response_mask": torch.cat(data["mask"]),
        "sequence_lengths": list(LENGTHS),
    }
    if kind == "default":
        config = DefaultLossConfig()
        result = defaults.answer({"rl_scale": SCALE}, **arguments)
    else:
        config = IPOLossConfig()
        result = defaults.answer({"rl_scale": SCALE, "type": "ipo"}, own=config, **arguments)
    same((result.loss, result.gradient), answer(config))
