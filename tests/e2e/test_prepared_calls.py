"""Calls of ``local:`` that repeat an earlier kind go by a plan: the same answers, errors and types."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch
from goldens import BLAMED_FIELDS, GOLDENS, SYSTEMS, arguments
from prepared import BATCH, WRONG, by_plan, thrice
from transports import ARRAYS, LARGE, LOSS, SMALL, assert_same


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture
def local() -> Iterator[cw.Client]:
    with cw.Client("local:?threads=1") as connected:
        yield connected


@pytest.mark.parametrize("system", SYSTEMS)
def test_goldens(system: str) -> None:
    plans = 0
    for name, golden in GOLDENS.items():
        if golden["dialect"] != system or name in BLAMED_FIELDS:
            continue
        with cw.Client("local:?threads=1") as local:
            plans += by_plan(thrice(local, **arguments(golden)))
    assert plans > 40


def test_every_preset(local: cw.Client) -> None:
    groups = [0, 0, 1, 1, 2, 2]
    for method in local.list_methods():
        inputs = {**BATCH, "ref_log_probs": BATCH["old_log_probs"]}
        by_groups = {"group_ids": groups} if "group" in method.summary else {}
        try:
            local.correct(method=method.name, **by_groups, **inputs)
        except cw.InvalidRequestError as error:
            assert "group_ids" in str(error)
            by_groups = {} if by_groups else {"group_ids": groups}
        with cw.Client("local:?threads=1") as fresh:
            assert by_plan(thrice(fresh, method=method.name, **by_groups, **inputs)) != bool(
                by_groups
            )


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_output_of_every_layout(local: cw.Client, name: str) -> None:
    batch = {**SMALL, **LARGE}[name]
    third = thrice(local, method=LOSS, outputs=ARRAYS, **batch)
    # The advantages of "one" could be those of a row.
    assert by_plan(third)


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": ("loss",)},
        {"outputs": ["keep_mask"]},
        {"metrics": False},
        {"run": "a", "replica": "b", "policy_version": 3, "request_id": "mine"},
        {"non_finite": cw.NonFinitePolicy.DROP},
        {"seed": 3},
        {"timeout": 100},
        {"timeout": float("inf")},
        {"global_counts": cw.GlobalCounts(num_tokens=1000, num_sequences=100)},
        {"response_mask": BATCH["response_mask"].astype(np.int64)},
        {"response_mask": BATCH["response_mask"].astype(np.float32)},
        {"old_log_probs": BATCH["old_log_probs"].astype(np.float64)},
        {"old_log_probs": np.asfortranarray(BATCH["old_log_probs"])},
        {"old_log_probs": BATCH["old_log_probs"].astype(">f4")},
        {"advantages": BATCH["advantages"][:, 0]},
        {"advantages": BATCH["advantages"][:, :1]},
    ],
    ids=str,
)
def test_arguments(local: cw.Client, change: dict[str, Any]) -> None:
    third = thrice(local, method=LOSS, **{**BATCH, **change})
    assert by_plan(third)
    assert third.request_id == change.get("request_id", third.request_id)


@pytest.mark.parametrize(
    "change",
    [
        {"row_divisors": np.ones(6)},
        {"policy_versions": np.zeros(BATCH["response_mask"].shape, np.int32), "policy_version": 1},
        {"version_spans": [(0, 0, 3, 1)], "policy_version": 1},
        {"progress": lambda *_: None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_has_no_plan(local: cw.Client, change: dict[str, Any]) -> None:
    mean = cw.PolicyLoss(
        surrogate="ppo_clip",
        aggregation="seq_mean_token_mean",
        denominator="original",
        clip_low=0.2,
        clip_high=0.2,
    )
    method = cw.Preset("token_tis", policy_loss=mean)
    first, _, third = [local.correct(method=method, **{**BATCH, **change}) for _ in range(3)]
    assert not by_plan(third)
    assert_same(third, first)


def test_shapes_of_one_plan(local: cw.Client) -> None:
    method = cw.Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0})
    for _ in range(2):
        local.correct(method=method, **padded_batch(3, 4))
    for seed, shape in enumerate([(3, 4), (3, 1), (40, 300), (2, 9000), (3, 4)]):
        batch = padded_batch(*shape, seed=seed)
        with cw.Client("local:?threads=1") as fresh:
            expected = fresh.correct(method=method, **batch)
        answer = local.correct(method=method, **batch)
        assert by_plan(answer)
        assert_same(answer, expected)


def test_packed_batches_of_any_lengths(local: cw.Client) -> None:
    for _ in range(2):
        local.correct(method=LOSS, **packed(padded_batch(8, 32)))
    kinds = (list, tuple, np.asarray, lambda lengths: np.asarray(lengths, np.int32))
    for seed, kind in enumerate(kinds):
        batch = packed(padded_batch(8, 32, seed=seed))
        batch["sequence_lengths"] = kind([int(n) for n in batch["sequence_lengths"]])
        with cw.Client("local:?threads=1") as fresh:
            expected = fresh.correct(method=LOSS, **batch)
        answer = local.correct(method=LOSS, **batch)
        assert by_plan(answer)
        assert_same(answer, expected)


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_the_first_call(local: cw.Client, name: str) -> None:
    def failure(client: cw.Client) -> Exception:
        call: dict[str, Any] = {"method": cw.Preset("token_tis", upper=1), "request_id": "a"}
        with pytest.raises(Exception) as caught:
            client.correct(**{**call, **BATCH, **WRONG[name]})
        return caught.value

    for _ in range(3):
        local.correct(method=cw.Preset("token_tis", upper=1), request_id="a", **BATCH)
    with cw.Client("local:?threads=1") as fresh:
        expected = failure(fresh)
    for _ in range(2):
        found = failure(local)
        assert type(found) is type(expected)
        assert str(found) == str(expected)
        assert getattr(found, "violations", None) == getattr(expected, "violations", None)
        assert getattr(found, "request_id", None) == getattr(expected, "request_id", None)
    assert by_plan(local.correct(method=cw.Preset("token_tis", upper=1), request_id="a", **BATCH))


def test_lengths_that_do_not_add_up(local: cw.Client) -> None:
    batch = packed(padded_batch(8, 32, seed=2))
    for _ in range(3):
        local.correct(method="token_tis", **batch)
    for lengths in ([1, 2], [True] * 8, [1.0] * 8, [-1, *batch["sequence_lengths"], 1], [2**70]):
        with pytest.raises((TypeError, ValueError), match="sequence_lengths"):
            local.correct(method="token_tis", **{**batch, "sequence_lengths": lengths})


def test_a_changed_block_is_another_method(local: cw.Client) -> None:
    block = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    method = cw.Dialect("verl", block)
    truncated = thrice(local, method=method, **BATCH)
    block["rollout_is_threshold"] = 1.01
    changed = local.correct(method=method, **BATCH)
    assert truncated.weights.max() > 1.5 > changed.weights.max()
    block["rollout_is_threshold"] = True
    with pytest.raises((TypeError, cw.InvalidRequestError)):
        local.correct(method=method, **BATCH)


def test_a_block_without_end_is_refused_at_once(local: cw.Client) -> None:
    block: Any = [1.0]
    for _ in range(60):  # 2^60 values by aliases
        block = [block, block]
    itself: dict[str, Any] = {}
    itself["rollout_is"] = itself
    for endless in (block, itself):
        with pytest.raises((cw.InvalidRequestError, ValueError, RecursionError)):
            local.correct(method=cw.Dialect("verl", {"rollout_is": endless}), **BATCH)


def test_methods_that_are_equal_but_not_the_same(local: cw.Client) -> None:
    for _ in range(3):
        local.correct(method=cw.Preset("token_tis", upper=1), **BATCH)
    assert by_plan(local.correct(method=cw.Preset("token_tis", upper=1), **BATCH))
    assert not by_plan(local.correct(method=cw.Preset("token_tis", upper=1.0), **BATCH))


def test_out_is_written_in_place_and_may_be_an_input(local: cw.Client) -> None:
    expected = thrice(local, method="token_tis", **BATCH)
    weights = np.empty(BATCH["old_log_probs"].shape, np.float32)
    for _ in range(3):
        result = local.correct(method="token_tis", out={"weights": weights}, **BATCH)
        np.testing.assert_array_equal(weights, expected.weights)
        assert result.weights is weights
    assert by_plan(result)
    own = {**BATCH, "old_log_probs": BATCH["old_log_probs"].copy()}
    local.correct(method="token_tis", out={"weights": own["old_log_probs"]}, **own)
    np.testing.assert_array_equal(own["old_log_probs"], expected.weights)


def test_results_are_of_their_own(local: cw.Client) -> None:
    """Each has its arrays, its id and its metrics, whenever they are read."""
    results = [local.correct(method="token_tis", **padded_batch(seed=s)) for s in range(6)]
    assert by_plan(results[5])
    with cw.Client("local:?threads=1") as fresh:
        for seed, result in enumerate(results):
            assert_same(result, fresh.correct(method="token_tis", **padded_batch(seed=seed)))
    assert len({result.request_id for result in results}) == len(results)
    assert results[5].request_id == results[5].request_id
    assert results[5].metrics is results[5].metrics


def test_copies_and_pickles_of_a_result(local: cw.Client) -> None:
    result = thrice(local, method="token_tis", **BATCH)
    for copied in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert_same(copied, result)
        assert copied.request_id == result.request_id
        assert repr(copied) == repr(result)
        assert copied.timing == result.timing
    with pytest.raises(AttributeError, match="no attribute 'weight'"):
        result.weight  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        result.loss = 1.0  # type: ignore[misc]


def test_a_warning_of_one_batch(local: cw.Client) -> None:
    thrice(local, method="token_tis", **BATCH)
    positive = {**BATCH, "old_log_probs": np.abs(BATCH["old_log_probs"])}
    warned = local.correct(method="token_tis", **positive)
    assert by_plan(warned)
    with cw.Client("local:?threads=1") as fresh:
        assert warned.warnings == fresh.correct(method="token_tis", **positive).warnings
    assert any("positive_log_probs" in text for text in warned.warnings)


def test_a_rule_that_drops_most_is_a_warning(local: cw.Client) -> None:
    narrow = cw.Preset("geo_rs_token_tis", keep_lower=0.999, keep_upper=1.001)
    result = thrice(local, method=narrow, **BATCH)
    assert result.metrics["kept_token_fraction"] < 0.5
    (text,) = [text for text in result.warnings if text.startswith("rule ")]
    assert text.startswith("rule mean_ratio drops ")
    assert "the ratio is outside 0.999 to 1.001" in text
    assert "counterweight suggest FILE" in text
    with cw.Client("local:?threads=1") as fresh:
        assert fresh.correct(method=narrow, **BATCH).warnings == result.warnings
        unmeasured = fresh.correct(method=narrow, metrics=False, **BATCH)
    assert not [text for text in unmeasured.warnings if text.startswith("rule ")]
