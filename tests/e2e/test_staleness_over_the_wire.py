"""Drift by staleness: numpy's numbers, and the same bytes by every transport and in process."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import packed, padded_batch
from server_process import DEADLINE_SECONDS, ServerProcess
from transports import LOSS

TRAINED = 40
RANGES = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, math.inf))
BYPASS = cw.Dialect(
    "verl", {"bypass_mode": True, "rollout_is": "token", "rollout_is_threshold": 2.0}
)


def stale_batch(num_sequences: int = 12, length: int = 700, seed: int = 11) -> dict[str, Any]:
    """A padded batch with versions that grow along each row, as weights arrive in flight."""
    batch = padded_batch(num_sequences, length, seed=seed)
    generator = np.random.default_rng(seed)
    lag = np.sort(generator.integers(0, 14, (num_sequences, length)), axis=1)[:, ::-1]
    versions = (TRAINED - lag).astype(np.int32)
    versions[generator.random(versions.shape) < 0.1] = -1
    # Where the mask is 0 any number is possible.
    versions[batch["response_mask"] == 0] = 10**6
    return {**batch, "policy_versions": versions}


BATCHES: dict[str, dict[str, Any]] = {
    "padded": stale_batch(),
    "packed": packed(stale_batch()),
    "wide": stale_batch(9, 70_001, seed=12),
    "one": stale_batch(1, 1, seed=13),
    "none": {name: array[:0] for name, array in stale_batch(2, 5).items()},
}


def spans_of(batch: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """The known versions of a padded batch, run by run."""
    spans: list[tuple[int, int, int, int]] = []
    for row, versions in enumerate(batch["policy_versions"]):
        counted = np.where(batch["response_mask"][row], versions, -1)
        edges = [0, *(np.flatnonzero(np.diff(counted)) + 1), len(counted)]
        spans += [
            (row, int(start), int(end), int(counted[start]))
            for start, end in itertools.pairwise(edges)
            if counted[start] >= 0
        ]
    return spans


def by_numpy(batch: dict[str, Any], num: str, den: str) -> dict[str, Any]:
    counts = batch["response_mask"] != 0
    versions = batch["policy_versions"][counts].astype(np.int64)
    log_ratio = (batch[num][counts] - batch[den][counts]).astype(np.float64)
    known = versions >= 0
    staleness = TRAINED - versions[known]
    buckets = []
    for first, last in RANGES:
        l = log_ratio[known][(staleness >= first) & (staleness <= last)]  # noqa: E741
        with np.errstate(invalid="ignore"):
            buckets.append((len(l), -l.sum() / len(l), (np.expm1(l) - l).sum() / len(l)))
    return {
        "buckets": buckets,
        "unknown_tokens": int((~known).sum()),
        "mean": staleness.mean(),
        "max": int(staleness.max()),
    }


def assert_same(staleness: cw.Staleness | None, expected: cw.Staleness) -> None:
    """NaN is equal to itself here."""
    assert staleness is not None
    np.testing.assert_equal(dataclasses.astuple(staleness), dataclasses.astuple(expected))


def answer(client: cw.Client, batch: dict[str, Any], **arguments: Any) -> cw.Staleness:
    chosen = {"method": "token_tis", "policy_version": TRAINED, **batch, **arguments}
    staleness = client.correct(**chosen).staleness
    assert staleness is not None
    return staleness


@pytest.mark.parametrize(
    ("method", "num", "den"),
    [
        ("token_tis", "old_log_probs", "rollout_log_probs"),
        (LOSS, "old_log_probs", "rollout_log_probs"),
        (BYPASS, "current_log_probs", "rollout_log_probs"),
    ],
    ids=["native", "loss", "bypass"],
)
@pytest.mark.parametrize("name", ["padded", "packed", "wide"])
def test_numbers_are_numpys(
    sharing: ServerProcess, name: str, method: Any, num: str, den: str
) -> None:
    batch = BATCHES[name]
    expected = by_numpy(batch, num, den)
    with cw.Client(sharing.address) as client:
        staleness = answer(client, batch, method=method)
    for bucket, (tokens, kl, k3) in zip(staleness.buckets, expected["buckets"], strict=True):
        assert bucket.tokens == tokens
        assert bucket.kl == pytest.approx(kl, rel=1e-4, abs=1e-6)
        assert bucket.k3 == pytest.approx(k3, rel=1e-4)
    assert staleness.unknown_tokens == expected["unknown_tokens"]
    assert staleness.mean == pytest.approx(expected["mean"], rel=1e-12)
    assert staleness.max == expected["max"]


WAYS = {
    "unary": {"transport": "unary"},
    "stream": {"transport": "stream"},
    "stream of 4097 B": {"transport": "stream", "chunk_bytes": 4097},
    "shared memory": {"transport": "shared_memory"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BATCHES)
def test_every_transport_gives_the_same_bytes(sharing: ServerProcess, name: str, way: str) -> None:
    batch = BATCHES[name]
    with cw.Client(sharing.address, transport="unary") as client:
        expected = answer(client, batch)
    with cw.Client(sharing.address, **WAYS[way]) as client:  # type: ignore[arg-type]
        assert_same(answer(client, batch), expected)
        future = client.submit(method="token_tis", policy_version=TRAINED, **batch)
        assert_same(future.result(DEADLINE_SECONDS).staleness, expected)

    async def ask() -> cw.Result[Any]:
        async with counterweight_rl.aio.Client(sharing.address, **WAYS[way]) as aio:  # type: ignore[arg-type]
            return await aio.correct(method="token_tis", policy_version=TRAINED, **batch)

    result = asyncio.run(asyncio.wait_for(ask(), DEADLINE_SECONDS))
    assert_same(result.staleness, expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_local_gives_the_same_bytes(
    sharing: ServerProcess, local_library: None, threads: int
) -> None:
    with (
        cw.Client(sharing.address) as client,
        cw.Client(f"local:?threads={threads}") as local,
    ):
        for batch in BATCHES.values():
            assert_same(answer(local, batch), answer(client, batch))


@pytest.mark.parametrize("target", ["server", "local:"])
def test_spans_and_layouts_give_the_same_bytes(
    sharing: ServerProcess, local_library: None, target: str
) -> None:
    padded = BATCHES["padded"]
    spans = spans_of(padded)
    without = {name: array for name, array in padded.items() if name != "policy_versions"}
    with cw.Client(sharing.address if target == "server" else target) as client:
        expected = answer(client, padded)
        assert_same(answer(client, BATCHES["packed"]), expected)
        assert_same(answer(client, without, version_spans=spans), expected)
        assert_same(answer(client, without, version_spans=np.array(spans)), expected)
        assert_same(answer(client, packed(without), version_spans=spans), expected)
        wide = {**padded, "policy_versions": padded["policy_versions"].astype(np.int64)}
        assert_same(answer(client, wide), expected)


def test_torch_tensors_give_the_same_bytes(sharing: ServerProcess) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    tensors = {name: torch.from_numpy(array) for name, array in BATCHES["padded"].items()}
    with cw.Client(sharing.address) as client:
        expected = answer(client, BATCHES["padded"])
        assert_same(answer(client, tensors), expected)
        tensors["policy_versions"] = tensors["policy_versions"].to(torch.int64)
        assert_same(answer(client, tensors), expected)


def test_tokens_in_no_bucket_are_those_that_the_drift_leaves_out(sharing: ServerProcess) -> None:
    batch = {**BATCHES["padded"], "old_log_probs": BATCHES["padded"]["old_log_probs"].copy()}
    batch["old_log_probs"][0, :7] = np.nan
    with cw.Client(sharing.address) as client:
        for policy in ("drop", "neutralize"):
            result = client.correct(
                method="token_tis", policy_version=TRAINED, non_finite=policy, **batch
            )
            assert result.staleness is not None
            known = sum(bucket.tokens for bucket in result.staleness.buckets)
            assert known + result.staleness.unknown_tokens == result.metrics["tokens"]


def test_there_is_none_without_versions_or_metrics(sharing: ServerProcess) -> None:
    with cw.Client(sharing.address) as client:
        assert client.correct(method="token_tis", **padded_batch()).staleness is None
        arguments = {"method": "token_tis", "policy_version": TRAINED, **BATCHES["padded"]}
        assert client.correct(**arguments, metrics=False).staleness is None


def with_version(version: int) -> dict[str, Any]:
    versions = BATCHES["padded"]["policy_versions"].copy()
    versions[0, 5] = version
    return {**BATCHES["padded"], "policy_versions": versions}


Refusal = Callable[[], dict[str, Any]]
REFUSALS: dict[str, tuple[Refusal, str, str]] = {
    "above": (
        lambda: with_version(TRAINED + 1),
        "policy_versions",
        "the version is 41 at sequence 0, token 5, where response_mask is 1; policy_version, of "
        "the policy being trained, is 40",
    ),
    "negative": (
        lambda: with_version(-2),
        "policy_versions",
        "the version is -2 at sequence 0, token 5, where response_mask is 1; it must be >= 0, or "
        "-1 where unknown",
    ),
    "both": (
        lambda: {**BATCHES["padded"], "version_spans": [(0, 0, 1, 1)]},
        "version_spans",
        "the tensor policy_versions came too; send one of the two",
    ),
    "no version": (
        lambda: {**BATCHES["padded"], "policy_version": None},
        "policy_version",
        "is required with versions of tokens: staleness is counted from it",
    ),
    "order": (
        lambda: {**padded_batch(), "version_spans": [(0, 0, 4, 1), (0, 3, 5, 1)]},
        "version_spans[1].start",
        "must not lie before the end of the span before: spans ascend by sequence and start, and "
        "do not overlap",
    ),
    "span's version": (
        lambda: {**padded_batch(), "version_spans": [(0, 0, 4, TRAINED + 1)]},
        "version_spans",
        "the version is 41 at sequence 0, token 0, where response_mask is 1; policy_version, of "
        "the policy being trained, is 40",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("way", [*WAYS, "local:"])
def test_wrong_versions_are_refused_alike(
    sharing: ServerProcess, local_library: None, name: str, way: str
) -> None:
    make, field, description = REFUSALS[name]
    made = (
        cw.Client("local:") if way == "local:" else cw.Client(sharing.address, **WAYS[way])  # type: ignore[arg-type]
    )
    with made as client, pytest.raises(cw.InvalidRequestError) as caught:
        client.correct(**{"method": "token_tis", "policy_version": TRAINED, **make()})
    assert [(v.field, v.description) for v in caught.value.violations] == [(field, description)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy_versions": np.zeros((6, 37), np.float32)}, "policy_versions must be integers"),
        ({"version_spans": [(0, 1, 2)]}, r"version_spans\[0\] must be \(sequence, start"),
        ({"version_spans": [(0, 1, 2, 0.5)]}, r"version_spans\[0\] must be a one-dim"),
    ],
)
def test_wrong_types_are_refused_before_sending(
    sharing: ServerProcess, arguments: dict[str, Any], message: str
) -> None:
    with cw.Client(sharing.address) as client, pytest.raises(TypeError, match=message):
        client.correct(method="token_tis", policy_version=1, **padded_batch(), **arguments)


def test_the_summary_is_one_line(sharing: ServerProcess) -> None:
    with cw.Client(sharing.address) as client:
        text = repr(answer(client, BATCHES["padded"]))
    assert text.startswith("Staleness(mean ")
    assert "3-4: " in text
    assert "9+: " in text
    assert "unknown: " in text
    assert "\n" not in text
