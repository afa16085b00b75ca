"""``policy_loss_function`` and ``compute_cispo_loss`` of ``compat.slime`` beside slime's own."""

from __future__ import annotations

import argparse
from typing import Any

import counterweight_rl as cw
import policy_loss_functions
import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST
from counterweight_rl.compat import slime
from megatron_trainer import ALL_DRAWS, batch
from policy_loss_functions import MIS, MIS_CHANGES, OPTIONS
from slime.backends.megatron_utils import loss as original
from slime.utils import ppo_utils
from test_slime_hook import answer, arguments
from test_slime_hook import trainer as trainer  # a fixture

pytestmark = pytest.mark.compares("compat.slime.policy_loss_function")

PATH = "counterweight_rl.compat.slime.policy_loss_function"
ICEPOP = "slime.backends.megatron_utils.loss.icepop_function"
MIS_PATH = "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
OF_SLIME = {
    **OPTIONS,
    "cispo": {"use_tis": False, "advantage_estimator": "cispo"},
    "tis, cispo": {"advantage_estimator": "cispo"},
    "icepop": {"custom_tis_function_path": ICEPOP},
}


@pytest.fixture(autouse=True)
def eager() -> Any:
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.parametrize("draw", ALL_DRAWS)
@pytest.mark.parametrize("name", OF_SLIME)
def test_the_loss_is_slimes_own(name: str, draw: str) -> None:
    policy_loss_functions.check(answer, arguments(**OF_SLIME[name], draw=draw), PATH)


@pytest.mark.parametrize("draw", ["plain", "shared", "negative", "per_token"])
@pytest.mark.parametrize("name", MIS_CHANGES)
def test_the_loss_with_mis_is_slimes_own(name: str, draw: str) -> None:
    args = arguments(custom_tis_function_path=MIS_PATH, **{**MIS, **MIS_CHANGES[name]}, draw=draw)
    policy_loss_functions.check(answer, args, PATH, left_out=lambda name: name.startswith("mis_"))


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("counterweight_rl.compat.slime.vanilla_tis_function", None),
        ("counterweight_rl.compat.slime.icepop_function", ICEPOP),
        ("counterweight_rl.hooks.slime.correct", None),
    ],
)
def test_our_functions_in_the_whole_loss_are_slimes(path: str, own: str | None) -> None:
    whole = {"loss_type": "custom_loss", "custom_loss_function_path": PATH}
    actual = answer(arguments(custom_tis_function_path=path, **whole))
    assert actual[0] == answer(arguments(custom_tis_function_path=own, **whole))[0]


@pytest.mark.parametrize("draw", ALL_DRAWS)
@pytest.mark.parametrize("use_tis", [False, True])
def test_without_old_log_probs_the_current_ones_are_taken(
    monkeypatch: pytest.MonkeyPatch, draw: str, use_tis: bool
) -> None:
    def without(args: argparse.Namespace) -> Any:
        logits, data = batch(args.draw)
        del data["log_probs"]
        loss, _, log = original.loss_function(args, data, 1, 8, logits)
        loss.backward()
        values = dict(zip(log["keys"], log["values"].tolist()[1:], strict=True))
        return loss.item(), logits.grad, values

    with pytest.warns(UserWarning, match="slime takes the current ones"):
        policy_loss_functions.check(without, arguments(use_tis=use_tis, draw=draw), PATH)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"custom_tis_function_path": "mine.function"}, "custom_tis_function_path"),
        ({"get_mismatch_metrics": True, "use_tis": False}, "get_mismatch_metrics"),
        ({"eps_clip_c": 0.9}, "eps_clip_c"),
    ],
    ids=str,
)
def test_what_the_dialect_refuses_is_named(options: dict[str, Any], field: str) -> None:
    args = arguments(**options, loss_type="custom_loss", custom_loss_function_path=PATH)
    with pytest.raises(cw.InvalidRequestError, match=field):
        answer(args)


@pytest.mark.compares("compat.slime.compute_cispo_loss")
@pytest.mark.parametrize("seed", range(4))
def test_cispo_of_tokens(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kl = 0.5 * torch.randn(200, generator=generator)
    kl[:20] *= 8
    log_probs = -3 * torch.rand(200, generator=generator)
    advantages = torch.randn(200, generator=generator) - 0.5
    upstream = torch.rand(200, generator=generator)
    bounds = (0.2, 0.28) if seed % 2 else (1.0, 4.0)
    found = []
    for function, dtype in (
        (ppo_utils.compute_cispo_loss, torch.float64),
        (slime.compute_cispo_loss, torch.float32),
    ):
        current = log_probs.to(dtype).requires_grad_()
        losses, clipped = function(kl.to(dtype), current, advantages.to(dtype), *bounds)
        (losses * upstream).sum().backward()
        found.append((losses.double(), current.grad.double(), clipped))
    (losses, gradient, clipped), actual = found
    torch.testing.assert_close(actual[0], losses, rtol=2e-5, atol=1e-7)
    atol = GRADIENT_ATOL_OF_LARGEST * gradient.abs().max().item()
    torch.testing.assert_close(actual[1], gradient, rtol=2e-5, atol=atol)
    assert actual[2].dtype == clipped.dtype
    assert torch.equal(actual[2], clipped)
    assert 0 < clipped.mean() < 1
