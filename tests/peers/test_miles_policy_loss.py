"""``policy_loss_function`` and ``compute_policy_loss`` of ``compat.miles`` beside miles' own."""

from __future__ import annotations

import importlib
from typing import Any

import counterweight_rl as cw
import policy_loss_functions
import pytest
import releases
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST
from counterweight_rl.compat import miles
from megatron_trainer import ALL_DRAWS
from policy_loss_functions import MIS, MIS_CHANGES, OPTIONS
from test_miles_hook import MIS_EXAMPLE, answer, arguments
from test_miles_hook import trainer as trainer  # a fixture

pytestmark = [
    pytest.mark.compares("compat.miles.policy_loss_function"),
    pytest.mark.skipif(bool(releases.RELEASE), reason="miles-rl 0.0.2 has other denominators"),
]

PATH = "counterweight_rl.compat.miles.policy_loss_function"
OF_MILES = {
    **OPTIONS,
    "icepop": {
        "custom_tis_function_path": (
            "miles.backends.training_utils.loss_hub.corrections.icepop_function"
        )
    },
    "no forward pass": {"use_tis": False, "skip_actor_forward_only": True, "lacks": ("log_probs",)},
    "no forward pass, tis": {"skip_actor_forward_only": True},
    "rollout as old, alone": {
        "use_tis": False,
        "use_rollout_logprobs": True,
        "lacks": ("log_probs",),
    },
    "no entropy": {"entropy_coef": 0.0},
    "entropy observed": {"entropy_coef": 0.0, "observe_training_entropy": True},
}


@pytest.fixture(autouse=True)
def eager() -> Any:
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.parametrize("draw", ALL_DRAWS)
@pytest.mark.parametrize("name", OF_MILES)
def test_the_loss_is_miles_own(name: str, draw: str) -> None:
    policy_loss_functions.check(answer, arguments(**OF_MILES[name], draw=draw), PATH)


@pytest.mark.parametrize("draw", ["plain", "shared", "negative", "per_token"])
@pytest.mark.parametrize("name", MIS_CHANGES)
def test_the_loss_with_mis_is_miles_own(name: str, draw: str) -> None:
    given = {**MIS, **MIS_CHANGES[name]}
    args = arguments(custom_tis_function_path=MIS_EXAMPLE, **given, draw=draw)
    policy_loss_functions.check(answer, args, PATH, left_out=lambda name: name.startswith("mis_"))


def test_log_probs_that_are_missing_are_named() -> None:
    args = arguments(
        loss_type="custom_loss", custom_loss_function_path=PATH, lacks=("log_probs",), use_tis=False
    )
    with pytest.raises(ValueError, match=r"^the batch has no log_probs of the old policy"):
        answer(args)
    args.use_rollout_logprobs, args.lacks = True, ("rollout_log_probs",)
    with pytest.raises(ValueError, match=r"^--use-rollout-logprobs needs rollout_log_probs"):
        answer(args)


def test_what_the_dialect_refuses_is_named() -> None:
    args = arguments(loss_type="custom_loss", custom_loss_function_path=PATH, use_opsm=True)
    with pytest.raises(cw.InvalidRequestError, match="use_opsm"):
        answer(args)


@pytest.mark.compares("compat.miles.compute_policy_loss")
@pytest.mark.parametrize("seed", range(8))
def test_the_loss_of_tokens_alone(seed: int) -> None:
    """Random tokens, most of them to avoid; some ratios are beyond miles' bound of e^20."""
    generator = torch.Generator().manual_seed(seed)
    kl = 0.5 * torch.randn(200, generator=generator)
    kl[:20] *= 8
    kl[20:30] = torch.linspace(-30, 30, 10)
    advantages = torch.randn(200, generator=generator) - 0.5
    upstream = torch.rand(200, generator=generator)
    bounds = (0.2, 0.28, None if seed % 2 else 3.0)
    math_utils = importlib.import_module("miles.backends.training_utils.loss_hub.math_utils")
    found = []
    for function in (math_utils.compute_policy_loss, miles.compute_policy_loss):
        given = kl.clone().requires_grad_()
        losses, clipped = function(given, advantages, *bounds)
        (losses * upstream).sum().backward()
        found.append((losses, given.grad, clipped))
    (losses, gradient, clipped), actual = found
    torch.testing.assert_close(actual[0], losses, rtol=2e-5, atol=1e-7)
    near = gradient.abs() < 1e6
    atol = GRADIENT_ATOL_OF_LARGEST * gradient[near].abs().max().item()
    torch.testing.assert_close(actual[1][near], gradient[near], rtol=2e-5, atol=atol)
    torch.testing.assert_close(actual[1], gradient, rtol=2e-5, atol=1.0)
    assert torch.equal(actual[2], clipped)
    assert (gradient[20:30] == 0).any()
    assert 0 < clipped.mean() < 1
