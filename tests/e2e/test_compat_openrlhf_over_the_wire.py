"""OpenRLHF's own functions, called as its trainers call them, against its answers.

If a function is part of a loss, the test writes out the rest of that loss as in the system, and
compares with the system's own loss and gradient.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import answers, check_loss, check_metrics, goldens, read
from goldens import GOLDENS, release_of

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import openrlhf  # noqa: E402

# The dialects warn about many settings of the goldens.
pytestmark = [
    pytest.mark.usefixtures("compat_client", "installed_release"),
    pytest.mark.filterwarnings("ignore:method.block"),
]


def openrlhf_loss(params: dict[str, Any], inputs: SimpleNamespace) -> tuple[Any, ...]:
    call = ("dp_size", "batch_num_tokens", "global_batch_size")
    settings = {name: value for name, value in params.items() if name not in call}
    # OpenRLHF's own actor turns it into the class's argument.
    mode = settings.pop("loss_agg_mode", None)
    if mode is not None:
        settings["token_level_loss"] = mode == "token-mean"
    eps_clip = settings.pop("eps_clip", 0.2)
    low, high = settings.pop("eps_clip_low_high", None) or (eps_clip, eps_clip)
    if len(settings.get("is_correction_threshold", ())) == 1:
        # So does the command line with a single bound; the class takes both ends.
        settings["is_correction_threshold"] = [0.0, *settings["is_correction_threshold"]]
    if settings.get("enable_vllm_is_correction"):
        # The default of OpenRLHF's command line, which its class lacks.
        settings.setdefault("vllm_is_truncated_threshold", [0.5, 5.0])
    module = openrlhf.PolicyLoss(clip_eps_low=low, clip_eps_high=high, **settings)
    return module(
        inputs.current,
        inputs.old,
        inputs.advantages,
        action_mask=inputs.mask,
        rollout_log_probs=inputs.rollout,
        **{name: value for name, value in params.items() if name in call},
    )


def without_kl(golden: dict[str, Any]) -> bool:
    # OpenRLHF adds the KL term outside of PolicyLoss.
    of_kl = {"use_kl_loss", "kl_estimator", "init_kl_coef", "unbiased_gradient"}
    return not of_kl & golden["params"].keys()


@pytest.mark.parametrize("name", goldens("openrlhf", lambda g: answers(g) and without_kl(g)))
def test_openrlhf_policy_loss(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    loss, *metrics = openrlhf_loss(golden["params"], inputs)
    check_loss(loss, inputs, expect)
    names = ["ppo_clip_ratio", "ppo_kl", "vllm_kl"]
    if release_of(golden) == "0.11.2":
        names.append("is_filter_ratio")
    told = dict(zip(names, metrics, strict=True))
    check_metrics({k: v.item() for k, v in told.items() if v is not None}, expect)


def is_openrlhf_error(golden: dict[str, Any]) -> bool:
    params = golden["params"]
    # A setting of the command line, unknown to the class: None is its default here.
    of_command_line = "loss_agg_mode" in params or params.get("is_correction_threshold", ()) is None
    return not answers(golden) and without_kl(golden) and not of_command_line


@pytest.mark.parametrize("name", goldens("openrlhf", is_openrlhf_error))
def test_openrlhf_error(name: str) -> None:
    golden = GOLDENS[name]
    # A TypeError reports arguments that the class lacks, or that exclude each other.
    with pytest.raises((cw.InvalidRequestError, TypeError)):
        openrlhf_loss(golden["params"], read(golden))
