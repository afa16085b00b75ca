"""Settings and comparison of slime's and miles' ``policy_loss_function``, run by their trainers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest
from megatron_trainer import Answer, same

# Fields that override those of ``megatron_trainer.arguments``; the first is close to the trainers'
# own defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {"eps_clip": 0.2, "eps_clip_high": 0.2, "entropy_coef": 0.0, "use_tis": False},
    "entropy": {"use_tis": False},
    "dual clip": {"use_tis": False, "eps_clip_c": 1.05},
    "gspo": {"use_tis": False, "advantage_estimator": "gspo", "eps_clip": 0.01},
    "per token": {"use_tis": False, "calculate_per_token_loss": True},
    "rollout as old": {"use_tis": False, "use_rollout_logprobs": True},
    "opsm": {"use_tis": False, "use_opsm": True, "opsm_delta": 0.01},
    "tis": {},
    "tis, per token": {"calculate_per_token_loss": True},
    "tis, gspo": {"advantage_estimator": "gspo"},
    "tis, dual clip": {"eps_clip_c": 1.05},
    **{
        f"KL {kind}": {"use_tis": False, "use_kl_loss": True, "kl_loss_type": kind}
        for kind in ("k1", "k2", "k3", "low_var_kl")
    },
    "KL, unbiased": {"use_tis": False, "use_kl_loss": True, "use_unbiased_kl": True},
    "KL, per token": {"use_kl_loss": True, "calculate_per_token_loss": True},
}
# The YAML of the MIS example, with bounds that some of the batch's tokens are beyond.
MIS = {
    **{"tis_mode": "truncate", "tis_level": "token", "tis_upper_bound": 1.3},
    **{"tis_lower_bound": 0.5, "use_rs": False, "rs_level": "token", "rs_lower_bound": 0.8},
    **{"rs_upper_bound": 1.3, "rs_veto_threshold": None, "tis_batch_normalize": False},
}
MIS_CHANGES: dict[str, dict[str, Any]] = {
    "truncate": {},
    "reject": {"use_rs": True},
    "veto": {"use_rs": True, "rs_veto_threshold": 0.6},
    "mask": {"tis_mode": "mask", "tis_lower_bound": 0.8},
    "clip, normalized": {"tis_mode": "clip", "tis_batch_normalize": True},
    "sequence": {"tis_level": "sequence", "rs_level": "geometric", "use_rs": True},
    "metrics alone": {"use_tis": False, "get_mismatch_metrics": True},
}


def check(
    answer: Callable[[argparse.Namespace], Answer],
    args: argparse.Namespace,
    function: str,
    *,
    left_out: Callable[[str], bool] = lambda name: False,
) -> None:
    """The function of ``compat``, as the custom loss, is the trainer's own with all metrics."""
    called = answer(args)
    args.loss_type, args.custom_loss_function_path = "custom_loss", function
    actual = answer(args)
    same(actual, called)
    missing = called[2].keys() - actual[2].keys()
    assert actual[2].keys() <= called[2].keys()
    assert all(map(left_out, missing)), missing
    for name, value in actual[2].items():
        assert value == pytest.approx(called[2][name], rel=1e-4, abs=1e-6), name
