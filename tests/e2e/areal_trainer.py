"""Arguments of AReaL's losses, and metrics of their statistics, as its trainer makes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from goldens import FOLDER, GOLDENS, REFUSED

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

# Metrics of the statistics that one loss alone has: SAPO's, and the PPO loss's by their own names.
OF_SAPO = ("sapo_soft_gate", "sapo_scaled_gate_pos", "sapo_scaled_gate_neg")
OF_PPO = {
    "n_total_tokens": "n_total_tokens",
    "n_valid_tokens_in_loss": "n_valid_tokens",
    "n_masked_tokens": "n_masked_tokens",
    "masked_token_ratio": "masked_token_ratio",
}
REPORTED = {
    *("importance_weight", "approx_kl", "actor_loss", "clip_ratio", "dual_clip_ratio"),
    *("clipped_tokens", "dual_clipped_tokens", "behave_imp_weight", "behave_approx_kl"),
    *("behave_filtered_ratio", "unclipped_behave_tokens", "rs_filtered_fraction"),
    *OF_SAPO,
    *OF_PPO,
}


# The dialect refuses advantages that differ along a row; the functions average them.
ANSWERED: dict[str, dict[str, Any]] = {
    **{name: golden for name, golden in GOLDENS.items() if golden["dialect"] == "areal"},
    **{
        name: json.loads((FOLDER / f"{name}.json").read_text())
        for name, refusal in REFUSED.items()
        if name.startswith("areal/") and refusal["blamed"] == ["advantages"]
    },
}


def names_of(condition: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Returns the names of AReaL's answers with a loss and this condition of their params."""
    found = [
        name
        for name, golden in ANSWERED.items()
        if "loss" in golden["expect"] and condition(golden["params"])
    ]
    assert found
    return found


def policies(params: dict[str, Any], inputs: Any) -> tuple[Any, Any]:
    """Returns the log-probs of the proximal and the sampling policy, as the trainer chooses."""
    if not params.get("use_decoupled_loss"):
        of_both = inputs.old if params.get("recompute_logprob") else inputs.rollout
        return of_both, of_both
    if params.get("prox_logp_method") == "reuse_train_logp":
        return inputs.current.detach(), inputs.rollout
    return inputs.old, inputs.rollout


def reported(inputs: Any, stat: dict[str, Any]) -> dict[str, float]:
    """Returns the trainer's metrics of the statistics, by the masks that it has for them."""
    mask = inputs.mask.bool()
    of_mask = {
        "importance_weight": stat["importance_weight"],
        "approx_kl": stat["approx_kl"],
        "actor_loss": stat["loss"],
        "clip_ratio": stat["clip_mask"],
        "dual_clip_ratio": stat["dual_clip_mask"],
        **{name: stat[name] for name in OF_SAPO if name in stat},
    }
    metrics = {
        "clipped_tokens": stat["clip_mask"].sum(),
        "dual_clipped_tokens": stat["dual_clip_mask"].sum(),
        **{name: stat[own] for name, own in OF_PPO.items() if own in stat},
    }
    groups = [(of_mask, mask)]
    if "behave_mask" in stat:
        used = stat["behave_mask"]
        of_used = {name: stat[name] for name in ("behave_imp_weight", "behave_approx_kl")}
        groups += [(of_used, used), ({"behave_filtered_ratio": mask & ~used}, mask)]
        metrics["unclipped_behave_tokens"] = used.sum()
        metrics["rs_filtered_fraction"] = stat["filtered_fraction"]
    for group, where in groups:
        for name, values in group.items():
            chosen = values.double()[where]
            if chosen.numel():
                averages = {"avg": chosen.mean(), "min": chosen.min(), "max": chosen.max()}
                metrics.update({f"{name}/{kind}": one for kind, one in averages.items()})
    return {name: float(one) for name, one in metrics.items()}


def check(expect: dict[str, Any], stat: dict[str, Any], inputs: Any) -> None:
    """Compares the trainer's metrics of the statistics, padded or packed, with a golden's."""
    shape = inputs.mask.shape
    stat = {
        name: one.reshape(shape) if isinstance(one, torch.Tensor) else one
        for name, one in stat.items()
    }
    metrics = reported(inputs, stat)
    compared = expect["metrics"].keys() & metrics.keys()
    assert {name for name in expect["metrics"] if name.partition("/")[0] in REPORTED} == compared
    for metric in compared:
        expected = float(expect["metrics"][metric])
        assert metrics[metric] == pytest.approx(expected, rel=2e-5, abs=2e-6), metric
