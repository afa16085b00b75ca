"""What a wrong request meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import counterweight as cw
import grpc
import numpy as np
import pytest
from batches import padded_batch
from server_process import ServerProcess


def fields(error: cw.InvalidRequestError) -> list[str]:
    return [violation.field for violation in error.violations]


def test_all_violations_at_once(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(
            method="token_tiss",
            run="not a label",
            group_ids=[1],
            policy_version=-1,
            **padded_batch(),
        )
    found = fields(caught.value)
    assert {"method.preset.name", "labels.run", "group_ids"} <= set(found)
    assert "ListMethods" in str(caught.value)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_missing_log_probs_are_named(client: cw.Client) -> None:
    batch = padded_batch()
    del batch["old_log_probs"]
    with pytest.raises(cw.InvalidRequestError, match=r"(?i)old_log_probs"):
        client.correct(method="token_tis", **batch)


def test_non_finite_names_tensor_sequence_and_token(client: cw.Client) -> None:
    batch = padded_batch()
    batch["old_log_probs"][0, 3] = np.nan
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method="token_tis", **batch)
    (violation,) = caught.value.violations
    text = f"{violation.field} {violation.description}"
    assert "old_log_probs" in text.lower()
    assert "sequence 0" in text
    assert "token 3" in text


def test_mask_values(client: cw.Client) -> None:
    batch = padded_batch()
    batch["response_mask"][0, 1] = 2
    with pytest.raises(cw.InvalidRequestError, match=r"(?i)response_mask"):
        client.correct(method="token_tis", **batch)


def test_sequence_lengths_that_do_not_add_up(client: cw.Client) -> None:
    flat = np.full(5, -1, np.float32)
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(
            rollout_log_probs=flat,
            old_log_probs=flat,
            response_mask=np.ones(5, bool),
            sequence_lengths=[2, 2],
            method="token_tis",
        )
    assert caught.value.violations


def test_unknown_parameter(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError, match="uper"):
        client.correct(method=cw.Preset("token_tis", uper=2.0), **padded_batch())


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (
            cw.CorrectionConfig(
                importance_weight=cw.ImportanceWeight(
                    ratio_source=cw.RatioSource.OLD_ROLLOUT,
                    level=cw.Level.TOKEN,
                    bound=cw.Bound.TRUNCATE,
                    lower=2.0,
                    upper=1.0,
                )
            ),
            "method.config.importance_weight.",
        ),
        (
            cw.CorrectionConfig(
                rules=[
                    cw.RejectionRule(
                        ratio_source=cw.RatioSource.OLD_ROLLOUT,
                        estimator=cw.Estimator.K3,
                        aggregation=cw.Aggregation.MEAN,
                    )
                ]
            ),
            "method.config.rules[0]",
        ),
        (
            cw.CorrectionConfig(
                policy_loss=cw.PolicyLoss(
                    surrogate=cw.Surrogate.PPO_CLIP,
                    aggregation=cw.LossAggregation.TOKEN_MEAN,
                    denominator=cw.LossDenominator.KEPT,
                    clip_low=0.2,
                )
            ),
            "method.config.policy_loss.clip_high",
        ),
    ],
    ids=["interval", "no-interval", "loss"],
)
def test_wrong_configs_name_the_field(
    client: cw.Client, config: cw.CorrectionConfig, field: str
) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method=config, **padded_batch())
    assert any(f.startswith(field) for f in fields(caught.value)), caught.value


def test_unknown_dialect_and_keys(client: cw.Client) -> None:
    batch = padded_batch()
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method=cw.Dialect("verll", {}), **batch)
    assert fields(caught.value) == ["method.dialect.system"]
    with pytest.raises(cw.InvalidRequestError, match="rollout_is") as caught:
        client.correct(method=cw.Dialect("verl", {"rollout_iss": "token"}), **batch)
    assert fields(caught.value) == ["method.dialect.block.rollout_iss"]
    block = {"rollout_iss": "token", "rollout_is": "token"}
    result = client.correct(method=cw.Dialect("verl", block, ignore_unknown_fields=True), **batch)
    assert any("rollout_iss" in warning for warning in result.warnings)
    assert result.weights is not None


def test_nothing_leaks_paths_or_addresses(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method="/etc", **padded_batch())
    assert "/work" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


def test_too_large(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--max_message_bytes=4096", "--max_tokens=200")
    with cw.Client(server.address) as client:
        limits = client.server_info().limits
        assert (limits.max_message_bytes, limits.max_tokens) == (4096, 200)

        def correct(length: int) -> cw.Result[Any]:
            batch = padded_batch(1, length)
            del batch["current_log_probs"], batch["advantages"]
            return client.correct(method="token_tis", **batch)

        with pytest.raises(cw.OverloadedError) as caught:
            correct(2000)
        assert caught.value.retry_after is None
        with pytest.raises(cw.InvalidRequestError):
            correct(201)
        correct(200)


def test_deadline(client: cw.Client) -> None:
    # 17 MB do not make it in a millisecond.
    batch = padded_batch(16, 65536)
    with pytest.raises(cw.DeadlineError):
        client.correct(method="token_tis", timeout=1e-3, **batch)
