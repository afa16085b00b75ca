"""Means over turns, runs of the mask, as a level of weights and in rules: by all ways to call."""

from __future__ import annotations

import dataclasses
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from server_process import ServerProcess

SOURCE = cw.RatioSource.OLD_ROLLOUT
WEIGHT = cw.ImportanceWeight(
    ratio_source=SOURCE, level=cw.Level.TURN, bound=cw.Bound.TRUNCATE, upper=1.1
)
RULE = cw.RejectionRule(
    ratio_source=SOURCE,
    estimator=cw.Estimator.DIFFERENCE,
    aggregation=cw.Aggregation.TURN_MEAN,
    lower=-0.02,
    upper=0.02,
    name="turns",
)
METHOD = cw.CorrectionConfig(
    importance_weight=WEIGHT,
    rules=(
        RULE,
        dataclasses.replace(
            RULE, estimator=cw.Estimator.RATIO, lower=0.5, upper=None, name="again"
        ),
    ),
    policy_loss=cw.PolicyLoss(
        surrogate="ppo_clip",
        aggregation="token_mean",
        denominator="kept",
        clip_low=0.2,
        clip_high=0.2,
    ),
)


def make(rows: int = 40, length: int = 90, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of turns of 1 to 15 tokens, one row without any."""
    rng = np.random.default_rng(seed)
    rollout = -rng.exponential(size=(rows, length)).astype(np.float32)
    old = np.minimum(rollout + 0.2 * rng.normal(size=rollout.shape), 0).astype(np.float32)
    ends = rng.random(rollout.shape) < 0.15
    mask = (np.cumsum(ends, 1) % 2).astype(np.uint8)
    mask[3:4] = 0
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "current_log_probs": (old - 0.01).astype(np.float32),
        "advantages": rng.normal(size=rollout.shape).astype(np.float32),
        "response_mask": mask,
    }


def turn_means(values: np.ndarray, mask: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mean over each turn's tokens that count, 0 elsewhere."""
    means = np.zeros(values.shape)
    for row in range(len(values)):
        bounds = np.flatnonzero(np.diff(np.pad(mask[row] != 0, 1).astype(int)))
        for begin, end in zip(bounds[::2], bounds[1::2], strict=True):
            counted = counts[row, begin:end]
            if counted.any():
                means[row, begin:end] = values[row, begin:end][counted].mean()
    return means


def correct(client: cw.Client, batch: Any, method: Any = METHOD, **more: Any) -> Any:
    outputs = ["weights", "keep_mask", "gradient"]
    return client.correct(method=method, outputs=outputs, **batch, **more)


@pytest.fixture(params=["local", "message", "stream"])
def client(request: pytest.FixtureRequest, server: ServerProcess, local_library: None) -> Any:
    target = "local:?threads=2" if request.param == "local" else server.address
    transport = {"message": "unary", "stream": "stream"}.get(request.param, "auto")
    with cw.Client(target, transport=transport) as made:
        yield made


def test_weights_and_rules_are_of_turns(client: cw.Client) -> None:
    batch = make()
    mask = batch["response_mask"] != 0
    old, rollout = batch["old_log_probs"].astype(float), batch["rollout_log_probs"].astype(float)
    ratio = np.exp(turn_means(old - rollout, mask, mask))
    difference = turn_means(np.exp(old) - np.exp(rollout), mask, mask)
    # The third call of a kind is a prepared one.
    for _ in range(3):
        found = correct(client, batch)
        np.testing.assert_allclose(found.weights[mask], np.minimum(ratio, 1.1)[mask], rtol=2e-6)
        assert not found.weights[~mask].any()
        kept = mask & (np.abs(difference) <= 0.02) & (ratio >= 0.5)
        np.testing.assert_array_equal(found.keep_mask != 0, kept)
        assert 0.2 < kept.sum() / mask.sum() < 0.9
        spread = difference[mask]
        assert found.metrics["rules/turns/mean"] == pytest.approx(spread.mean(), abs=1e-8)
        assert found.metrics["rules/turns/max"] == pytest.approx(spread.max(), rel=1e-6)


def test_a_turn_of_one_token_is_that_token(client: cw.Client) -> None:
    batch = make(seed=1)
    batch["response_mask"][:, 1::2] = 0
    by_token = dataclasses.replace(
        METHOD,
        importance_weight=dataclasses.replace(WEIGHT, level=cw.Level.TOKEN),
        rules=tuple(
            dataclasses.replace(rule, aggregation=cw.Aggregation.TOKEN) for rule in METHOD.rules
        ),
    )
    found, expected = correct(client, batch), correct(client, batch, by_token)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)
    np.testing.assert_array_equal(found.keep_mask, expected.keep_mask)


@pytest.mark.parametrize("policy", ["drop", "neutralize"])
def test_tokens_that_are_not_finite_end_no_turn(client: cw.Client, policy: str) -> None:
    batch = make(seed=2)
    batch["old_log_probs"][5, 7] = np.nan
    batch["response_mask"][5, 5:10] = 1
    mask = batch["response_mask"] != 0
    bad = np.isnan(batch["old_log_probs"])
    apart = np.where(bad, 0, batch["old_log_probs"].astype(float) - batch["rollout_log_probs"])
    found = correct(client, batch, non_finite=policy)
    counts = mask & ~bad if policy == "drop" else mask
    expected = np.minimum(np.exp(turn_means(apart, mask, counts)), 1.1)
    np.testing.assert_allclose(found.weights[counts], expected[counts], rtol=2e-6)
    assert found.non_finite_tokens == 1
    with pytest.raises(cw.InvalidRequestError, match="old_log_probs"):
        correct(client, batch)


def test_the_sums_of_parts_are_those_of_the_step(client: cw.Client) -> None:
    batch = make(seed=3)
    asked = {name: batch[name] for name in batch if name not in {"current_log_probs", "advantages"}}
    method = dataclasses.replace(METHOD, policy_loss=None)
    more: Any = {"method": method, "outputs": ["weights"], "partial_sums": True}
    whole = client.correct(**asked, **more)
    parts = [
        client.correct(**{name: asked[name][rows] for name in asked}, **more)
        for rows in (slice(0, 11), slice(11, 12), slice(12, 40))
    ]
    merged = client.merge([part.sums for part in parts])
    # The second number counts parts.
    assert np.array_equal(np.delete(merged.sums, 1), np.delete(whole.sums.sums, 1))
    assert client.metrics_of(merged, method).metrics == whole.metrics
    assert np.concatenate([part.weights for part in parts]).tobytes() == whole.weights.tobytes()


def test_a_shadow_may_be_of_turns(client: cw.Client) -> None:
    batch = make(seed=4)
    asked = {name: batch[name] for name in batch if name not in {"current_log_probs", "advantages"}}
    method = dataclasses.replace(METHOD, policy_loss=None)
    found = client.diagnose(**asked, shadows=[method]).shadows[0]
    expected = client.correct(method=method, outputs=["weights"], **asked)
    assert found.effective_sample_size == expected.metrics["effective_sample_size"]
    assert found.kept_token_fraction == expected.metrics["kept_token_fraction"]


def test_what_turns_do_not_take(client: cw.Client) -> None:
    late = dataclasses.replace(WEIGHT, after_rule=1)
    method = dataclasses.replace(METHOD, importance_weight=late)
    with pytest.raises(cw.InvalidRequestError, match='must be 0 with "turn"'):
        correct(client, make(), method)
    method = dataclasses.replace(METHOD, rule_evaluation=cw.RuleEvaluation.SEQUENTIAL)
    with pytest.raises(cw.InvalidRequestError, match='"turn_mean" is over response_mask'):
        correct(client, make(), method)
    third = dataclasses.replace(RULE, estimator=cw.Estimator.K3, lower=None, name="third")
    method = dataclasses.replace(METHOD, rules=(*METHOD.rules, third))
    with pytest.raises(cw.InvalidRequestError, match="two different means over turns"):
        correct(client, make(), method)
