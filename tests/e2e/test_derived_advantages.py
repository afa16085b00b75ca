"""prime_rl's ref_kl makes its own advantages: by all ways to call, the bytes of sent ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from counterweight_rl import choices, config
from counterweight_rl.compat import _prime_rl_ref_kl
from server_process import ServerProcess

BLOCK = {"type": "ref_kl"}
REF_KL = cw.Dialect("prime_rl", BLOCK)
# The rule in the dialect drops tokens; here it would make weights 0, and the weights are ratios.
WEIGHTS = config.CorrectionConfig(
    importance_weight=config.ImportanceWeight(
        ratio_source=choices.RatioSource.CURRENT_ROLLOUT,
        level=choices.Level.TOKEN,
        bound=choices.Bound.NONE,
    ),
    rules=(dataclasses.replace(_prime_rl_ref_kl.METHOD.rules[0], effect=choices.RuleEffect.DROP),),
    drift_source=choices.RatioSource.CURRENT_ROLLOUT,
)


def make(rows: int = 40, length: int = 90, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows with masked tokens, one without any, and log-probs with numbers that float32 rounds."""
    rng = np.random.default_rng(seed)
    rollout = -rng.exponential(size=(rows, length)).astype(np.float32)
    mask = (rng.random(rollout.shape) < 0.8).astype(np.uint8)
    mask[3:4] = 0
    near = rng.normal(scale=0.4, size=(2, rows, length))
    ref = np.where(mask != 0, rollout + near[1], np.nan)
    return {
        "rollout_log_probs": rollout,
        "current_log_probs": np.minimum(rollout + near[0], 0).astype(np.float32),
        "ref_log_probs": ref.astype(np.float32),
        "response_mask": mask,
    }


def gains(batch: dict[str, np.ndarray]) -> np.ndarray:
    apart = batch["ref_log_probs"].astype(float) - batch["current_log_probs"]
    return np.where(batch["response_mask"] != 0, apart, 0).astype(np.float32)


def by_hand(client: cw.Client, batch: dict[str, np.ndarray], **more: Any) -> Any:
    """The loss of ``compat``'s method: the reference of its KL penalty is the rollout policy."""
    rollout = batch["rollout_log_probs"]
    sent = {**batch, "old_log_probs": rollout, "ref_log_probs": rollout}
    loss = _prime_rl_ref_kl.METHOD.policy_loss
    assert loss is not None
    mean = dataclasses.replace(loss, aggregation=choices.LossAggregation.TOKEN_MEAN)
    method = dataclasses.replace(_prime_rl_ref_kl.METHOD, policy_loss=mean)
    return client.correct(
        method=method, advantages=gains(batch), outputs=["gradient"], **sent, **more
    )


def ref_kl(client: cw.Client, batch: Any, **more: Any) -> Any:
    return client.correct(
        method=REF_KL, outputs=["weights", "keep_mask", "gradient"], **batch, **more
    )


@pytest.fixture(params=["local", "message", "stream"])
def client(request: pytest.FixtureRequest, server: ServerProcess, local_library: None) -> Any:
    target = "local:?threads=2" if request.param == "local" else server.address
    transport = {"message": "unary", "stream": "stream"}.get(request.param, "auto")
    with cw.Client(target, transport=transport) as made:
        yield made


def test_the_answer_is_that_of_sent_advantages(client: cw.Client) -> None:
    batch = make()
    of_weights = client.correct(
        method=WEIGHTS,
        outputs=["weights", "keep_mask"],
        **{name: batch[name] for name in batch if name != "ref_log_probs"},
    )
    expected = by_hand(client, batch)
    # The third call of a kind is a prepared one.
    for _ in range(3):
        found = ref_kl(client, batch)
        assert found.loss == expected.loss != 0
        assert found.gradient.tobytes() == expected.gradient.tobytes()
        assert found.weights.tobytes() == of_weights.weights.tobytes()
        assert found.keep_mask.tobytes() == of_weights.keep_mask.tobytes()
        mask, gain = batch["response_mask"] != 0, gains(batch).astype(float)
        means = [row[where].mean() for row, where in zip(gain, mask, strict=True) if where.any()]
        assert len(means) == 39
        assert found.metrics["ref_kl/mean"] == pytest.approx(np.mean(means), rel=1e-12)
        assert found.metrics["ref_kl/std"] == pytest.approx(np.std(means, ddof=1), rel=1e-12)
        assert found.metrics["ref_kl/max"] == pytest.approx(max(means), rel=1e-12)
        dropped = mask & (found.keep_mask == 0)
        shares = [d.sum() / m.sum() for d, m in zip(dropped, mask, strict=True) if m.any()]
        assert found.metrics["ref_kl/is_masked/mean"] == pytest.approx(np.mean(shares), rel=1e-12)
        assert 0 < np.mean(shares) < 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_prepared_calls_follow_the_batch(client: cw.Client, dtype: Any) -> None:
    """Other shapes and numbers through one plan."""
    for seed, rows in enumerate((7, 7, 7, 31, 5)):
        batch = make(rows=rows, length=20 + seed, seed=seed)
        batch["ref_log_probs"] = batch["ref_log_probs"].astype(dtype)
        found, expected = ref_kl(client, batch), by_hand(client, batch)
        assert found.loss == expected.loss
        assert found.gradient.tobytes() == expected.gradient.tobytes()


@pytest.mark.parametrize("outputs", [["weights"], ["weights", "gradient"]])
def test_the_sums_of_parts_are_those_of_the_step(client: cw.Client, outputs: list[str]) -> None:
    batch = make(seed=1)
    scaled = cw.Dialect("prime_rl", {**BLOCK, "ref_kl_scale": 77})
    whole = client.correct(method=scaled, outputs=outputs, partial_sums=True, **batch)
    apart = [
        client.correct(
            method=scaled,
            outputs=outputs,
            partial_sums=True,
            **{name: each[rows] for name, each in batch.items()},
        )
        for rows in (slice(0, 11), slice(11, 40))
    ]
    merged = client.merge([each.sums for each in apart])
    totals = client.metrics_of(merged, scaled)
    assert totals.loss == whole.loss
    assert totals.metrics == whole.metrics
    assert "mismatch_kl/all/mean" in totals.metrics
    for name in outputs:
        rows = [getattr(each, name) for each in apart]
        assert np.concatenate(rows).tobytes() == getattr(whole, name).tobytes()


@pytest.mark.parametrize("policy", ["drop", "neutralize"])
def test_a_reference_that_is_not_finite_is_as_an_advantage(client: cw.Client, policy: str) -> None:
    batch = make(seed=2)
    batch["ref_log_probs"][5, 7] = np.inf
    batch["response_mask"][5, 7] = 1
    found = ref_kl(client, batch, non_finite=policy)
    expected = by_hand(client, batch, non_finite=policy)
    assert found.loss == expected.loss
    assert found.gradient.tobytes() == expected.gradient.tobytes()
    assert found.non_finite_tokens == expected.non_finite_tokens == 1
    assert np.isfinite(found.metrics["ref_kl/mean"])
    with pytest.raises(cw.InvalidRequestError, match="ref_log_probs"):
        ref_kl(client, batch)


def test_sent_advantages_are_not_read(client: cw.Client) -> None:
    batch = make(seed=3)
    expected = ref_kl(client, batch)
    found = ref_kl(client, batch, advantages=gains(batch) + 1)
    assert not any("not read" in warning for warning in expected.warnings)
    assert "advantages was sent, but this method does not read it" in found.warnings
    assert found.loss == expected.loss
    assert found.gradient.tobytes() == expected.gradient.tobytes()
