"""Positive numbers that float32, in which kernels compute, makes 0."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import pytest
from batches import padded_batch

WEIGHT = {"ratio_source": "old_rollout", "level": "token", "bound": "truncate"}
RULE = {"ratio_source": "old_rollout", "estimator": "ratio", "aggregation": "mean", "upper": 2.0}
REDUCTION = {"aggregation": "token_mean", "denominator": "original"}


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("method.parameters", lambda x: cw.Preset("token_tis", upper=x)),
        (
            "method.importance_weight.upper",
            lambda x: cw.CorrectionConfig(importance_weight=cw.ImportanceWeight(**WEIGHT, upper=x)),
        ),
        *(
            (
                f"method.importance_weight.{name}",
                lambda x, name=name: cw.CorrectionConfig(
                    importance_weight=cw.ImportanceWeight(**WEIGHT, upper=2.0, **{name: x})
                ),
            )
            for name in ("token_clamp", "aggregate_clamp")
        ),
        *(
            (
                f"method.rules[0].{name}",
                lambda x, name=name: cw.CorrectionConfig(
                    rules=[cw.RejectionRule(**RULE, **{name: x})]
                ),
            )
            for name in ("token_clamp", "aggregate_clamp")
        ),
        *(
            (
                f"method.policy_loss.{name}",
                lambda x, name=name, surrogate=surrogate: cw.CorrectionConfig(
                    policy_loss=cw.PolicyLoss(
                        **REDUCTION,
                        **{"surrogate": surrogate, "clip_low": 0.2, "clip_high": 0.2, name: x},
                    )
                ),
            )
            for name, surrogate in (
                ("ratio_cap", "ppo_clip"),
                ("log_ratio_clamp", "ppo_clip"),
                ("tau_positive", "sapo"),
                ("tau_negative", "sapo"),
                ("beta", "dro"),
            )
        ),
        *(
            (
                f"method.kl_penalty.{name}",
                lambda x, name=name: cw.CorrectionConfig(
                    policy_loss=cw.PolicyLoss(**REDUCTION, surrogate="reinforce"),
                    kl_penalty=cw.KlPenalty(estimator="k3", coefficient=0.1, **{name: x}),
                ),
            )
            for name in ("token_clamp", "value_clamp")
        ),
    ],
)
def test_numbers_above_0_that_float32_makes_0(client: cw.Client, field: str, make: Any) -> None:
    """Kernels compute in float32, where such a bound or clamp would be 0, without a word."""
    batch = padded_batch(2, 5)
    for number in (1e-46, 1e-50, 5e-324):
        with pytest.raises(cw.InvalidRequestError) as caught:
            client.correct(method=make(number), ref_log_probs=batch["old_log_probs"], **batch)
        assert field in [v.field for v in caught.value.violations]
        description = next(v.description for v in caught.value.violations if v.field == field)
        assert "float32" in description


@pytest.mark.parametrize(
    ("system", "field", "make"),
    [
        (
            "verl",
            "rollout_is_threshold",
            lambda x: {"rollout_is": "token", "rollout_is_threshold": x},
        ),
        (
            "verl",
            "policy_loss.tau_pos",
            lambda x: {"policy_loss": {"loss_mode": "sapo", "tau_pos": x}},
        ),
        (
            "verl",
            "policy_loss.dro_beta",
            lambda x: {"policy_loss": {"loss_mode": "dro", "dro_beta": x}},
        ),
        (
            "trl",
            "vllm_importance_sampling_clip_max",
            lambda x: {
                "vllm_importance_sampling_mode": "token_truncate",
                "vllm_importance_sampling_clip_max": x,
            },
        ),
        (
            "openrlhf",
            "vllm_is_truncated_threshold",
            lambda x: {
                "enable_vllm_is_correction": True,
                "vllm_is_correction_type": "tis",
                "vllm_is_truncated_threshold": [0.0, x],
            },
        ),
        (
            "skyrl",
            "off_policy_correction.token_tis_ratio_clip_high",
            lambda x: {
                "off_policy_correction": {
                    "tis_ratio_type": "token",
                    "token_tis_ratio_clip_high": x,
                }
            },
        ),
    ],
)
def test_bounds_of_dialects_that_float32_makes_0(
    client: cw.Client, system: str, field: str, make: Any
) -> None:
    batch = padded_batch(2, 5)

    def dialect(number: float) -> cw.Dialect:
        return cw.Dialect(system, make(number), release={"openrlhf": "0.11.1"}.get(system, ""))

    for number in (1e-46, 1e-50):
        with pytest.raises(cw.InvalidRequestError) as caught:
            client.correct(method=dialect(number), **batch)
        assert any(
            name.endswith(field.rpartition(".")[2])
            for name in (v.field for v in caught.value.violations)
        )
    client.correct(method=dialect(1.5), **batch)
