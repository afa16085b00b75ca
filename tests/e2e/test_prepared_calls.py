"""Calls of ``local:`` that repeat an earlier kind go by a plan: the same answers, errors and types."""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import pickle
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import packed, padded_batch
from counterweight_rl.local import prepared_calls
from goldens import BLAMED_FIELDS, GOLDENS, SYSTEMS, arguments
from transports import ARRAYS, LARGE, LOSS, SMALL, assert_same

BATCH = padded_batch()


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture
def local() -> Iterator[cw.Client]:
    with cw.Client("local:?threads=1") as connected:
        yield connected


def by_plan(result: cw.Result[Any]) -> bool:
    return "_late" in vars(result)


def thrice(local: cw.Client, **call: Any) -> cw.Result[Any]:
    """Compares the third answer with the first; returns it."""
    first, _, third = [local.correct(**call) for _ in range(3)]
    assert not by_plan(first)
    assert_same(third, first)
    assert list(third.metrics) == list(first.metrics)
    assert (third.staleness, third.timing.queue_seconds) == (first.staleness, 0.0)
    return third


@pytest.mark.parametrize("system", SYSTEMS)
def test_goldens(system: str) -> None:
    plans = 0
    for name, golden in GOLDENS.items():
        if golden["dialect"] != system or name in BLAMED_FIELDS:
            continue
        with cw.Client("local:?threads=1") as local:
            plans += by_plan(thrice(local, **arguments(golden)))
    assert plans > 50


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


WRONG: dict[str, dict[str, Any]] = {
    "shape": {"old_log_probs": BATCH["old_log_probs"][:, :-1]},
    "rows": {"old_log_probs": BATCH["old_log_probs"][:-1]},
    "nan": {"old_log_probs": np.full_like(BATCH["old_log_probs"], np.nan)},
    "mask": {"response_mask": BATCH["response_mask"] * 2},
    "dtype": {"old_log_probs": np.zeros(BATCH["old_log_probs"].shape, np.int32)},
    "list": {"old_log_probs": BATCH["old_log_probs"].tolist()},
    "masked array": {"old_log_probs": np.ma.masked_invalid(BATCH["old_log_probs"])},
    "missing": {"old_log_probs": None},
    "out of another shape": {"out": {"weights": np.empty((2, 2), np.float32)}},
    "out of another dtype": {"out": {"weights": np.empty(BATCH["advantages"].shape)}},
    "out not asked for": {"out": {"token_reasons": np.empty(BATCH["advantages"].shape, np.uint16)}},
    "out of no method": {"out": {"gradient": np.empty(BATCH["advantages"].shape, np.float32)}},
    "out is no mapping": {"out": [1]},
    "out twice": {"out": dict.fromkeys(("weights", "gradient"), np.empty((6, 37), np.float32))},
    "version": {"policy_version": -1},
    "version of a float": {"policy_version": 1.0},
    "id": {"request_id": "\n"},
    "no id": {"request_id": 7},
    "timeout": {"timeout": 0},
    "metrics": {"metrics": None},
    "unknown": {"reponse_mask": 1},
    "bool for a number": {"method": cw.Preset("token_tis", upper=True)},
    "padded length": {"padded_length": 37},
}


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


def test_plans_are_bounded(local: cw.Client) -> None:
    for seed in range(3 * prepared_calls._MOST_PLANS):
        for _ in range(2):
            local.correct(method="token_tis", seed=seed, **padded_batch(2, 3))
    prepared = local._connection._calls._engine.prepared  # type: ignore[union-attr]
    assert prepared is not None
    assert len(prepared._plans) == prepared_calls._MOST_PLANS


def test_threads_prepare_and_run_at_once() -> None:
    batches = [padded_batch(5, 30 + seed, seed=seed) for seed in range(8)]
    with cw.Client("local:?threads=1") as fresh:
        expected = [fresh.correct(method="token_tis", seed=i, **b) for i, b in enumerate(batches)]
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for i in range(200):
                at = (i + offset) % len(batches)
                assert_same(local.correct(method="token_tis", seed=at, **batches[at]), expected[at])
        except BaseException as error:
            failures.append(error)

    with cw.Client("local:?threads=2") as local:
        workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures


def test_timeouts_and_closed_clients(local: cw.Client) -> None:
    large = padded_batch(400, 4000)
    for _ in range(2):
        local.correct(method=LOSS, timeout=60, **large)
    with pytest.raises(cw.DeadlineError):
        for _ in range(3):
            local.correct(method=LOSS, timeout=1e-9, **large)
    held = local.correct(method=LOSS, timeout=60, **large)
    assert by_plan(held)
    ended: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                local.correct(method=LOSS, timeout=60, **large)
        except cw.CounterweightError as error:
            ended.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    local.close()
    for worker in workers:
        worker.join(60)
    assert len(ended) == 2
    assert all("closed" in str(error) for error in ended)
    assert held.metrics["tokens"] > 0, "read after the client's end"


def test_a_plan_leaves_with_its_client() -> None:
    local = cw.Client("local:?threads=1")
    for _ in range(3):
        result = local.correct(method="token_tis", **BATCH)
    plan = weakref.ref(vars(result)["_late"]._plan)
    local.close()
    del local
    gc.collect()
    assert plan() is not None, "the result needs it"
    assert result.metrics["tokens"] > 0
    del result
    gc.collect()
    assert plan() is None


def _in_child(client: cw.Client, answers: Any) -> None:
    result = client.correct(method="token_tis", **BATCH)
    answers.put((by_plan(result), result.weights, result.metrics["kl"]))


def test_a_forked_child_uses_the_plans(local: cw.Client) -> None:
    expected = thrice(local, method="token_tis", **BATCH)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(local, answers))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    planned, weights, kl = answers.get()
    assert planned
    np.testing.assert_array_equal(weights, expected.weights)
    assert kl == expected.metrics["kl"]


def test_aio_and_submit() -> None:
    async def ask() -> list[cw.Result[Any]]:
        async with cw.aio.Client("local:?threads=1") as client:
            return [await client.correct(method="token_tis", **BATCH) for _ in range(3)]

    first, _, third = asyncio.run(ask())
    assert by_plan(third)
    assert_same(third, first)
    with cw.Client("local:?threads=1") as local:
        answers = [local.submit(method="token_tis", **BATCH).result() for _ in range(2)]
        answers += [local.correct(method="token_tis", **BATCH) for _ in range(2)]
        changed = {name: array.copy() for name, array in BATCH.items()}
        futures = [local.submit(method="token_tis", **changed) for _ in range(3)]
        for array in changed.values():
            array.fill(0)
        answers += [future.result() for future in futures]
        assert by_plan(answers[-1])
        with pytest.raises(cw.InvalidRequestError, match="old_log_probs"):
            local.submit(method="token_tis", **{**BATCH, **WRONG["nan"]}).result()
    for answer in answers:
        assert_same(answer, first)


def test_prepare_says_it(local: cw.Client) -> None:
    method = cw.Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0})
    prepared = local.prepare(method=method, outputs=["weights"], run="a", metrics=False)
    answers = [prepared.correct(**BATCH) for _ in range(3)]
    assert by_plan(answers[2])
    expected = local.correct(method=method, outputs=["weights"], run="a", metrics=False, **BATCH)
    assert_same(answers[2], expected)
    assert "verl" in repr(prepared)
    with pytest.raises(TypeError, match="method was given to prepare"):
        prepared.correct(method="token_tis", **BATCH)
    with pytest.raises(TypeError, match="unexpected keyword argument 'old_logprobs'"):
        prepared.correct(old_logprobs=1, **BATCH)
    with pytest.raises(TypeError, match="missing the keyword argument 'response_mask'"):
        prepared.correct()

    async def ask() -> cw.Result[Any]:
        async with cw.aio.Client("local:?threads=1") as client:
            return await client.prepare(method=method, outputs=["weights"]).correct(**BATCH)

    assert asyncio.run(ask()).weights is not None


@pytest.mark.parametrize(
    ("fixed", "error"),
    [
        ({}, "missing the keyword argument 'method'"),
        ({"method": "token_tis", "out": {}}, "unexpected keyword argument 'out'"),
        ({"method": 3}, "method must be a preset's name"),
        ({"method": "token_tis", "outputs": "weights"}, "outputs must be a sequence"),
        ({"method": "token_tis", "outputs": ["weight"]}, "did you mean"),
        ({"method": cw.Preset("token_tis", upper="2")}, "must be a number"),
    ],
    ids=str,
)
def test_prepare_refuses(local: cw.Client, fixed: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        local.prepare(**fixed)
