"""Sequences that count as masked, by all ways to call: nemo_rl's seq_logprob_error_threshold and
the public sequence_filter."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from server_process import ServerProcess

THRESHOLD = "seq_logprob_error_threshold"
BLOCK = {
    "use_importance_sampling_correction": True,
    "truncated_importance_sampling_type": "tis",
    "truncated_importance_sampling_ratio": 1.5,
    "reference_policy_kl_penalty": 0.0,
}
OF_FILTER = "seq_mult_prob_error"


def make(rows: int = 40, length: int = 90, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rollout = -rng.exponential(size=(rows, length)).astype(np.float32)
    spread = 10 ** rng.uniform(-3, 0.3, (rows, 1))
    old = np.minimum(rollout + spread * rng.normal(size=rollout.shape), 0).astype(np.float32)
    mask = (rng.random(rollout.shape) < 0.8).astype(np.uint8)
    mask[3:4] = 0
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "current_log_probs": (old - 0.01).astype(np.float32),
        "advantages": rng.normal(size=rollout.shape).astype(np.float32),
        "response_mask": mask,
    }


def errors_of(batch: dict[str, np.ndarray], where: np.ndarray) -> np.ndarray:
    """The mean of exp(|old - rollout|) of each row, 0 without a token."""
    apart = np.abs(batch["old_log_probs"].astype(float) - batch["rollout_log_probs"])
    sums = np.where(where, np.exp(np.where(where, apart, 0)), 0).sum(1)
    means: np.ndarray = sums / np.maximum(where.sum(1), 1)
    return means


def dialect(threshold: float | None) -> cw.Dialect:
    return cw.Dialect("nemo_rl", {**BLOCK, THRESHOLD: threshold})


def correct(client: cw.Client, threshold: float | None, batch: Any, **more: Any) -> Any:
    return client.correct(
        method=dialect(threshold),
        outputs=["weights", "keep_mask", "gradient"],
        **batch,
        **more,
    )


def assert_same(found: Any, expected: Any) -> None:
    for name in ("weights", "keep_mask", "gradient"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()
    assert found.loss == expected.loss
    metrics = [
        {n: m for n, m in result.metrics.items() if OF_FILTER not in n and n != "num_masked_seqs"}
        for result in (found, expected)
    ]
    assert metrics[0] == metrics[1]


@pytest.fixture(params=["local", "message", "stream"])
def client(request: pytest.FixtureRequest, server: ServerProcess, local_library: None) -> Any:
    target = "local:?threads=2" if request.param == "local" else server.address
    transport = {"message": "unary", "stream": "stream"}.get(request.param, "auto")
    with cw.Client(target, transport=transport) as made:
        yield made


def test_a_filtered_row_is_a_masked_one(client: cw.Client) -> None:
    batch = make()
    errors = errors_of(batch, batch["response_mask"] != 0)
    threshold = float(np.median(errors[errors > 0])) * (1 + 1e-9)
    masked = {**batch, "response_mask": batch["response_mask"] * (errors <= threshold)[:, None]}
    masked["response_mask"] = masked["response_mask"].astype(np.uint8)
    expected = correct(client, None, masked)
    # The third call of a kind is a prepared one.
    for _ in range(3):
        found = correct(client, threshold, batch)
        assert_same(found, expected)
        metrics = found.metrics
        assert metrics["num_masked_seqs"] == (errors > threshold).sum() > 10
        there = errors[errors > 0]
        for suffix, rows in (("", there), ("_after_mask", there[there <= threshold])):
            of_rows = {"mean": rows.mean(), "min": rows.min(), "max": rows.max()}
            for name, value in of_rows.items():
                found_value = metrics[f"{name}_{OF_FILTER}{suffix}"]
                assert found_value == pytest.approx(value, rel=1e-6)


def config(upper: float | None) -> cw.CorrectionConfig:
    return cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            ratio_source="old_rollout", level="token", bound="truncate", upper=1.5
        ),
        policy_loss=cw.PolicyLoss(
            surrogate="ppo_clip",
            aggregation="token_mean",
            denominator="kept",
            clip_low=0.2,
            clip_high=0.2,
        ),
        sequence_filter=None
        if upper is None
        else cw.SequenceFilter(ratio_source=cw.RatioSource.OLD_ROLLOUT, upper=upper),
    )


def test_a_filter_of_the_public_config(client: cw.Client) -> None:
    batch = make(seed=5)
    errors = errors_of(batch, batch["response_mask"] != 0)
    there = errors[errors > 0]
    upper = float(np.median(there)) * (1 + 1e-9)
    left = (errors <= upper)[:, None]
    masked = {**batch, "response_mask": (batch["response_mask"] * left).astype(np.uint8)}
    outputs = ["weights", "keep_mask", "gradient"]
    expected = client.correct(method=config(None), outputs=outputs, **masked)
    for _ in range(3):
        found = client.correct(method=config(upper), outputs=outputs, **batch)
        metrics = {n: m for n, m in found.metrics.items() if not n.startswith("sequence_filter")}
        assert metrics == expected.metrics
        for name in outputs:
            assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()
        assert found.loss == expected.loss
        assert found.metrics["sequence_filter_mean"] == pytest.approx(there.mean(), rel=1e-6)
        assert found.metrics["sequence_filter_max"] == pytest.approx(there.max(), rel=1e-6)
        dropped = (errors > upper).sum() / len(there)
        assert found.metrics["sequence_filter_dropped_fraction"] == dropped > 0.4


def test_a_filter_names_what_is_wrong(client: cw.Client) -> None:
    batch = make()
    for upper, message in ((0.9, "must be >= 1"), (float("nan"), "finite")):
        with pytest.raises(cw.InvalidRequestError, match=message) as caught:
            client.correct(method=config(upper), outputs=["weights"], **batch)
        fields = [violation.field for violation in caught.value.violations]
        assert fields == ["method.sequence_filter.upper"]
    of_current = cw.SequenceFilter(ratio_source=cw.RatioSource.CURRENT_ROLLOUT, upper=2.0)
    method = cw.CorrectionConfig(sequence_filter=of_current)
    del batch["current_log_probs"], batch["advantages"]
    with pytest.raises(cw.InvalidRequestError, match="current_log_probs"):
        client.correct(method=method, outputs=["keep_mask"], **batch)


def test_nothing_is_left_of_a_batch(client: cw.Client) -> None:
    found = correct(client, 0.5, make())
    assert found.loss == 0.0
    assert not found.keep_mask.any()
    assert not found.gradient.any()
    assert found.metrics["num_valid_samples"] == 0
    assert found.metrics[f"max_{OF_FILTER}_after_mask"] == 0


@pytest.mark.parametrize("policy", ["drop", "neutralize"])
def test_tokens_that_are_not_finite_have_no_part(client: cw.Client, policy: str) -> None:
    batch = make(seed=1)
    batch["old_log_probs"][5, 7] = np.nan
    batch["response_mask"][5, 7] = 1
    where = (batch["response_mask"] != 0) & np.isfinite(batch["old_log_probs"])
    errors = errors_of(batch, where)
    threshold = float(errors[5]) * 1.0001
    left = (errors <= threshold)[:, None]
    masked = {**batch, "response_mask": (batch["response_mask"] * left).astype(np.uint8)}
    found = correct(client, threshold, batch, non_finite=policy)
    assert_same(found, correct(client, None, masked, non_finite=policy))
    assert found.non_finite_tokens == 1


def test_a_number_that_is_refused_is_refused_in_a_dropped_row_too(client: cw.Client) -> None:
    batch = make(seed=2)
    batch["old_log_probs"][5, :] += 30
    batch["old_log_probs"][5, 7] = np.nan
    batch["response_mask"][5, 7] = 1
    with pytest.raises(cw.InvalidRequestError, match="old_log_probs"):
        correct(client, 1.0, batch)


def test_sums_of_a_part_count_the_rows_that_are_left(client: cw.Client) -> None:
    batch = make(seed=3)
    errors = errors_of(batch, batch["response_mask"] != 0)
    threshold = float(np.median(errors[errors > 0])) * (1 + 1e-9)
    found = correct(client, threshold, batch, partial_sums=True)
    left = (errors <= threshold)[:, None]
    masked = {**batch, "response_mask": (batch["response_mask"] * left).astype(np.uint8)}
    expected = correct(client, None, masked, partial_sums=True)
    assert np.array_equal(found.sums.sums, expected.sums.sums)


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_the_memory_of_a_pass_over_tokens_is_in_the_budget(
    start_server: Callable[..., ServerProcess], transport: Any
) -> None:
    # Room for the tensors and the answer, not for a row of 200,000 tokens as float64 beside them.
    server = start_server("--max_message_bytes=4000000", "--max_bytes_in_flight=20000000")
    batch = make(rows=1, length=200_000)
    asked = {name: batch[name] for name in ("rollout_log_probs", "old_log_probs", "response_mask")}
    asked |= {"method": cw.Dialect("nemo_rl", BLOCK), "outputs": ["keep_mask"]}
    with cw.Client(server.address, transport=transport) as client:
        assert client.correct(**asked, metrics=False).keep_mask is not None
        with pytest.raises(cw.OverloadedError, match="bytes"):
            client.correct(**asked)


def test_two_threads_have_the_metrics_of_one(local_library: None) -> None:
    batches = [make(seed=seed) for seed in range(8)]
    with cw.Client("local:?threads=1") as client:
        expected = [correct(client, 1.5, batch) for batch in batches]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = [*pool.map(lambda batch: correct(client, 1.5, batch), 4 * batches)]
    for one, other in zip(found, 4 * expected, strict=True):
        assert one.metrics == other.metrics
        assert one.weights.tobytes() == other.weights.tobytes()


def test_a_shadow_with_a_filter_is_refused(client: cw.Client) -> None:
    batch = make(seed=4)
    del batch["current_log_probs"]
    with pytest.raises(cw.InvalidRequestError, match="before anything else"):
        client.diagnose(**batch, shadows=[dialect(1.5)])
