"""Errors of invalid requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import grpc
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl.dialect_fields import FIELDS
from server_process import ServerProcess

LOSS = cw.PolicyLoss(
    surrogate=cw.Surrogate.PPO_CLIP,
    aggregation=cw.LossAggregation.TOKEN_MEAN,
    denominator=cw.LossDenominator.KEPT,
    clip_low=0.2,
    clip_high=0.2,
)


def paths(error: cw.InvalidRequestError) -> list[str | None]:
    """Returns the server's names of the violations."""
    return [violation.path for violation in error.violations]


def fields(error: cw.InvalidRequestError) -> list[str]:
    """Returns the client's names of the violations."""
    return [violation.field for violation in error.violations]


def violations(client: cw.Client, **arguments: Any) -> dict[str, str]:
    """Returns the violations of a request by argument."""
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(**arguments)
    found = {violation.field: violation.description for violation in caught.value.violations}
    for field, description in found.items():
        assert f"{field}: {description}" in str(caught.value)
    return found


def test_all_violations_at_once(client: cw.Client) -> None:
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(
            method="token_tiss",
            run="not a label",
            group_ids=[1],
            policy_version=-1,
            **padded_batch(),
        )
    assert {"method.preset.name", "labels.run", "group_ids"} <= set(paths(caught.value))
    assert {"method", "run", "policy_version", "group_ids"} == set(fields(caught.value))
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 violations:"
    assert lines[1:] == [f"  {v.field}: {v.description}" for v in caught.value.violations]
    assert "client.list_methods()" in str(caught.value)
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
    found = violations(
        client, method=cw.Preset("token_tis", uper=2.0, allow_unknown=True), **padded_batch()
    )
    assert found == {
        "method.parameters[uper]": "token_tis has no such parameter. Did you mean 'upper'? It takes "
        "upper."
    }


def test_unknown_presets(client: cw.Client) -> None:
    batch = padded_batch()
    nearest = "Did you mean 'token_tis'? client.list_methods() tells the names."
    for name, advice in (
        ("token_tsi", nearest),
        ("Token_TIS", nearest),
        ("perfect", "client.list_methods() tells the names."),
        # The caller's text is unchanged, also with quotes in it.
        ("ListMethods", "client.list_methods() tells the names."),
        ("a' ListMethods, DROP 'b", "client.list_methods() tells the names."),
    ):
        expected = {"method": f"No preset is called '{name}'. {advice}"}
        assert violations(client, method=name, **batch) == expected
    shown = "'" + "x" * 64 + "...'"
    (text,) = violations(client, method="x" * 100_000, **batch).values()
    assert text == f"No preset is called {shown}. client.list_methods() tells the names."


def test_the_callers_words(client: cw.Client) -> None:
    """Known sentences are translated to arguments; the server's use the names of its protos."""
    batch = padded_batch()
    nan = {**batch, "old_log_probs": np.full_like(batch["old_log_probs"], np.nan)}
    (text,) = violations(client, method="token_tis", **nan).values()
    assert 'non_finite="drop" or "neutralize" accepts such tokens' in text

    without = {key: value for key, value in batch.items() if key != "old_log_probs"}
    found = violations(client, method="token_tis", **without)
    assert found == {"old_log_probs": "old_log_probs is required by this method"}

    mask = batch["response_mask"].copy()
    mask[0, 1] = 2
    found = violations(client, method="token_tis", **{**batch, "response_mask": mask})
    assert list(found) == ["response_mask"]

    found = violations(client, method="token_tis", outputs=("weights", "gradient"), **batch)
    assert found == {
        "outputs['gradient']": "gradient is that of a policy loss, and the method has none; "
        "client.list_methods() tells which have, such as token_tis_ppo_clip"
    }

    loss = cw.PolicyLoss(
        surrogate=cw.Surrogate.LUSPO,
        aggregation=cw.LossAggregation.TOKEN_MEAN,
        denominator=cw.LossDenominator.GLOBAL,
        clip_low=0.2,
        clip_high=0.2,
    )
    found = violations(client, method=cw.CorrectionConfig(policy_loss=loss), **batch)
    assert found == {
        "method.policy_loss.aggregation": '"luspo" is "gspo" added up by "seq_mean_token_sum"',
        "global_counts": 'is required by policy_loss.denominator="global"',
    }


def test_a_rule_that_drops_most_is_a_warning(client: cw.Client) -> None:
    narrow = cw.Preset("skyrl_token_mask", keep_lower=0.999, keep_upper=1.001)
    result = client.correct(method=narrow, **padded_batch())
    (rule,) = result.rules
    share = rule.dropped_tokens * 100 // int(padded_batch()["response_mask"].sum())
    assert share > 50
    (text,) = [text for text in result.warnings if text.startswith("rule ")]
    assert text.startswith(f"rule {rule.name} drops {share} % of the tokens it covers")
    assert result.metrics[f"rules/{rule.name}/low_fraction"] > 0
    assert f"rules/{rule.name}/low_fraction" in text


def test_warnings_name_the_argument(client: cw.Client) -> None:
    method = cw.Dialect("verl", {"DROP": 1}, ignore_unknown_fields=True)
    result = client.correct(method=method, **padded_batch())
    assert "Ignored the unknown field method.block.DROP." in result.warnings


def test_results_fit_a_screen(client: cw.Client) -> None:
    method = cw.Preset("token_tis", policy_loss=LOSS)
    outputs = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient")
    for result in (
        client.correct(method=method, outputs=outputs, **padded_batch(16, 512)),
        client.correct(method=method, metrics=False, outputs=("loss",), **padded_batch(16, 512)),
        client.correct(method=cw.Dialect("verl", {"rollout_is": "token"}), **padded_batch()),
    ):
        lines = repr(result).splitlines()
        assert len(lines) <= 12, lines
        assert max(map(len, lines)) <= 100, lines
        assert ("weights float32 [16, 512]" in lines[1]) == (
            result.weights is not None and result.weights.shape == (16, 512)
        )
        assert any(line.startswith("  loss: ") for line in lines) == (result.loss is not None)


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
    assert any(path and path.startswith(field) for path in paths(caught.value)), caught.value


def test_unknown_dialect_and_keys(client: cw.Client) -> None:
    batch = padded_batch()
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method=cw.Dialect("verll", {}), **batch)
    assert paths(caught.value) == ["method.dialect.system"]
    assert fields(caught.value) == ["method.system"]
    assert "Did you mean 'verl'? It speaks verl, trl, skyrl, openrlhf, " in str(caught.value)
    with pytest.raises(cw.InvalidRequestError, match="rollout_is") as caught:
        client.correct(method=cw.Dialect("verl", {"rollout_iss": "token"}), **batch)
    assert paths(caught.value) == ["method.dialect.block.rollout_iss"]
    assert fields(caught.value) == ["method.block.rollout_iss"]
    assert "did you mean 'rollout_is'?" in str(caught.value)
    block = {"rollout_iss": "token", "rollout_is": "token"}
    result = client.correct(method=cw.Dialect("verl", block, ignore_unknown_fields=True), **batch)
    assert any("rollout_iss" in warning for warning in result.warnings)
    assert result.weights is not None


def nulls(table: Any) -> Any:
    """A block with every field: a list has one element."""
    if isinstance(table, list):
        return [nulls(each) for each in table]
    return table and {name: nulls(inner) for name, inner in table.items()}


@pytest.mark.parametrize("system", FIELDS)
def test_the_client_knows_no_field_that_the_server_does_not(client: cw.Client, system: str) -> None:
    block = {**nulls(FIELDS[system]), "no_field": 0}
    # Trees of verl and AReaL exclude the fields beside them, and verl has a policy_loss in another place.
    for name in ("algorithm", "actor_rollout_ref", "actor"):
        block.pop(name, None)
    block.get("policy_loss", {}).pop("policy_loss", None)
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method=cw.Dialect(system, block), **padded_batch())
    unknown = [v.path for v in caught.value.violations if "Unknown field" in v.description]
    assert unknown == ["method.dialect.block.no_field"]


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
    # 17 MB take longer than a millisecond.
    batch = padded_batch(16, 65536)
    with pytest.raises(cw.DeadlineError):
        client.correct(method="token_tis", timeout=1e-3, **batch)


# Fields that a system requires in its block, or without which it requires the reference's log-probs.
REQUIRED: dict[str, dict[str, Any]] = {
    "ms_swift": {"beta": 0},
    "nemo_rl": {"reference_policy_kl_penalty": 0},
    "tinker": {"loss_fn": "importance_sampling"},
}


@pytest.mark.parametrize(
    "method",
    [
        *(
            cw.Dialect(system, {**REQUIRED.get(system, {}), **{f"z{i:02}": 1 for i in range(40)}})
            for system in sorted(FIELDS)
        ),
        cw.Dialect("skyrl", {"sapo": {f"z{i:02}": 1 for i in range(40)}}),
        cw.Preset("token_tis", allow_unknown=True, **{f"z{i:02}": 1.0 for i in range(40)}),
    ],
    ids=lambda method: getattr(method, "system", "preset"),
)
def test_all_violations_are_counted(client: cw.Client, method: cw.Method) -> None:
    batch = padded_batch(2, 5)
    with pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(method=method, **batch)
    assert str(caught.value).startswith("40 violations:")
    assert 0 < len(caught.value.violations) <= 16


def test_all_ignored_fields_are_counted(client: cw.Client) -> None:
    block = {"rollout_is": "token", **{f"z{i:02}": 1 for i in range(40)}}
    method = cw.Dialect("verl", block, ignore_unknown_fields=True)
    warnings = client.correct(method=method, **padded_batch(2, 5)).warnings
    named = [text for text in warnings if text.startswith("Ignored the unknown field")]
    assert len(named) == 16
    assert "Ignored 24 more unknown fields of method.block." in warnings
