"""The server's warnings point at the caller's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from compat_service import METRICS, SKYRL_METRICS, answers, tensors
from fake_server import FakeServer
from sample import MASK, OLD, ROLLOUT

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import openrlhf, skyrl, trl, verl  # noqa: E402

old, rollout, advantages, mask = tensors(OLD, ROLLOUT, ROLLOUT, MASK)
config = {"policy_loss": {"rollout_correction": {"rollout_is": "token"}}}
tis = {"tis_ratio_type": "token"}
batch = SimpleNamespace(
    batch={"old_log_probs": old, "rollout_log_probs": rollout, "response_mask": mask},
    union=lambda weights: weights,
)

# Each call is on a line of its own.
CALLS: dict[str, Callable[[], Any]] = {
    "verl correction": lambda: verl.compute_rollout_correction_and_rejection_mask(
        old, rollout, mask
    ),
    "verl add_to_batch": lambda: verl.compute_rollout_correction_and_add_to_batch(batch, {}),
    "verl reinforce": lambda: verl.compute_policy_loss_reinforce(
        old, rollout, advantages, mask, config=config
    ),
    "skyrl compute": lambda: skyrl.compute_off_policy_correction(old, rollout, mask, tis),
    "skyrl apply": lambda: skyrl.apply_off_policy_correction(old, old, rollout, mask, tis),
    "trl ratio": lambda: trl.vllm_importance_sampling_ratio(old, rollout, mask),
    "trl mask": lambda: trl.get_off_policy_mask(advantages, old, rollout, mask, 0.5),
    "openrlhf": lambda: openrlhf.PolicyLoss()(old, rollout, advantages),
}
for name, compute in verl.POLICY_LOSS_REGISTRY.items():
    CALLS[f"verl {name}"] = lambda compute=compute: compute(  # type: ignore[misc]
        old, rollout, advantages, mask, config=config
    )


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_at_the_callers_line(service: FakeServer, name: str) -> None:
    service.handler = answers({**METRICS, **SKYRL_METRICS}, "beware of k1")
    call = CALLS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    code: Any = call.__code__  # type: ignore[attr-defined]
    (warning,) = caught
    assert str(warning.message) == "beware of k1"
    assert warning.filename == __file__
    assert warning.lineno in {line for *_, line in code.co_lines()}
