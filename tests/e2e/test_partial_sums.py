"""Sums as a value: any parts of a step, in any order, give the bytes of one batch of all rows."""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import packed, padded_batch
from goldens import GOLDENS, SAMPLE, arguments, asks_for_loss
from server_process import ServerProcess
from transports import LOSS

ROW_ARRAYS = (
    "rollout_log_probs",
    "old_log_probs",
    "current_log_probs",
    "ref_log_probs",
    "advantages",
    "response_mask",
    "policy_versions",
)
PRESETS = [each.name for each in cw.Client("local:").list_methods()]
# The number of parts is among the sums.
PARTS = 1


@pytest.fixture(scope="module")
def local() -> Iterator[cw.Client]:
    with cw.Client("local:?threads=2") as client:
        yield client


def bits(value: float) -> bytes:
    return struct.pack("=d", value)


def assert_same_numbers(actual: Mapping[str, float], expected: Mapping[str, float]) -> None:
    assert actual.keys() == expected.keys()
    wrong = {n: (actual[n], expected[n]) for n in actual if bits(actual[n]) != bits(expected[n])}
    assert not wrong


def assert_same_answer(totals: cw.StepTotals, whole: cw.Result[Any]) -> None:
    assert_same_numbers(totals.metrics, whole.metrics)
    assert totals.rules == whole.rules
    assert (totals.loss is None) == (whole.loss is None)
    if totals.loss is not None and whole.loss is not None:
        assert bits(totals.loss) == bits(whole.loss)
    assert totals.non_finite_tokens == whole.non_finite_tokens
    assert repr(totals.staleness) == repr(whole.staleness)
    assert {w for w in whole.warnings if "does not read it" not in w} == set(totals.warnings)


def assert_same_sums(merged: cw.PartialSums, whole: cw.PartialSums) -> None:
    assert merged.maxima.tobytes() == whole.maxima.tobytes()
    differ = np.flatnonzero(merged.sums.view(np.uint64) != whole.sums.view(np.uint64))
    assert set(differ) <= {PARTS}


def rows_of(batch: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    return {
        name: value[rows] if name in ROW_ARRAYS and np.ndim(value) > 0 else value
        for name, value in batch.items()
    }


def split(batch: Mapping[str, Any], count: int, seed: int) -> list[dict[str, Any]]:
    """Ragged parts of the rows in another order, the second one empty."""
    generator = np.random.default_rng(seed)
    rows = generator.permutation(len(batch["response_mask"]))
    cuts = np.sort(generator.integers(0, len(rows) + 1, count - 1))
    if count > 2:
        cuts[1] = cuts[0]
    return [rows_of(batch, part) for part in np.split(rows, cuts)]


def ragged_batch(seed: int = 1) -> dict[str, Any]:
    """Sizes from 1e-6 to 10, where order would matter, and rows without tokens."""
    batch = padded_batch(40, 300, seed=seed)
    generator = np.random.default_rng(seed)
    size = 10.0 ** generator.uniform(-6, 1, (40, 1))
    noise = (size * generator.normal(size=(40, 300))).astype(np.float32)
    batch["old_log_probs"] = np.minimum(batch["rollout_log_probs"] + noise, 0)
    batch["response_mask"][::7] = 0
    batch["old_log_probs"][batch["response_mask"] == 0] = np.nan
    return batch


@pytest.mark.parametrize("name", PRESETS)
def test_the_sums_of_any_parts_are_the_whole_batchs(local: cw.Client, name: str) -> None:
    batch = {**ragged_batch(), "method": name, "partial_sums": True, "omit_loss": True}
    whole = local.correct(**batch)
    assert whole.sums is not None
    assert whole.sums.nbytes <= 8 << 10
    assert_same_answer(local.metrics_of(whole.sums, name), whole)
    for count in (2, 3, 7):
        sums = [local.correct(**part).sums for part in split(batch, count, seed=count)]
        merged = local.merge(sums)
        assert_same_sums(merged, whole.sums)
        assert_same_sums(local.merge([local.merge(sums[:1]), local.merge(sums[1:])]), whole.sums)
        # As an all-reduce does.
        added = cw.PartialSums(
            np.sum([s.sums for s in sums], axis=0), np.max([s.maxima for s in sums], axis=0)
        )
        assert_same_sums(local.merge(added), whole.sums)
        assert_same_answer(local.metrics_of(added, name), whole)


def losses() -> list[str]:
    return [
        each.name
        for each in cw.Client("local:").list_methods()
        if each.config is not None and each.config.policy_loss is not None
    ]


@pytest.mark.parametrize("name", losses())
def test_losses_with_the_steps_counts_add_up(local: cw.Client, name: str) -> None:
    batch = {**ragged_batch(), "method": name, "partial_sums": True}
    parts = split(batch, 5, seed=1)
    first = [local.correct(**part, omit_loss=True).sums for part in parts]
    totals = local.metrics_of(first, name)
    counts = totals.counts
    if totals.counts_refusal:
        pytest.skip(totals.counts_refusal)
    try:
        whole = local.correct(**batch, global_counts=counts)
    except cw.InvalidRequestError as error:
        # The caller passes a selection, or a width.
        assert "selection_scope" in str(error) or "norm_length" in str(error)
        return
    finished = [local.correct(**part, global_counts=counts) for part in parts]
    sums = [result.sums for result in finished if result.sums is not None]
    assert_same_answer(local.metrics_of(sums, name), whole)
    assert_same_sums(local.merge(sums), whole.sums or sums[0])
    alone = local.correct(**{**batch, "partial_sums": False})
    np.testing.assert_equal(whole.gradient, alone.gradient)
    np.testing.assert_equal(whole.loss, alone.loss)


def test_the_steps_counts_are_those_that_the_method_reads(local: cw.Client) -> None:
    batch = {**ragged_batch(), "partial_sums": True, "omit_loss": True}
    kept = cw.CorrectionConfig(
        rules=LOSS.rules,
        policy_loss=cw.PolicyLoss(
            surrogate="ppo_clip",
            aggregation="token_mean",
            denominator="kept",
            clip_low=0.2,
            clip_high=0.2,
        ),
    )
    result = local.correct(**batch, method=kept)
    assert result.keep_mask is not None
    totals = local.metrics_of(result.sums, kept)
    assert totals.counts == cw.GlobalCounts(num_kept_tokens=int(result.keep_mask.sum()))
    normalized = cw.CorrectionConfig(
        importance_weight=cw.ImportanceWeight(
            ratio_source="old_rollout", level="token", bound="truncate", upper=2.0, normalize=True
        )
    )
    sums = [local.correct(**part, method=normalized).sums for part in split(batch, 4, seed=2)]
    totals = local.metrics_of(sums, normalized)
    assert totals.counts == cw.GlobalCounts(weight_mean=totals.metrics["weight_normalizer"])
    whole = local.correct(**batch, method=normalized)
    again = local.correct(**batch, method=normalized, global_counts=totals.counts)
    np.testing.assert_equal(again.weights, whole.weights)


ANSWERED = [name for name, g in GOLDENS.items() if "error" not in g["expect"]]


@pytest.mark.parametrize("name", ANSWERED[::SAMPLE])
def test_other_systems_metrics_are_made_of_sums(local: cw.Client, name: str) -> None:
    asked = {**arguments(GOLDENS[name]), "partial_sums": True}
    whole = local.correct(**asked)
    assert whole.sums is not None
    assert_same_answer(local.metrics_of(whole.sums, asked["method"]), whole)
    if asks_for_loss(GOLDENS[name]) or asked.keys() - {*ROW_ARRAYS, "method", "outputs"} != {
        "partial_sums"
    }:
        return
    sums = [local.correct(**part).sums for part in split(asked, 3, seed=3)]
    assert_same_sums(local.merge(sums), whole.sums)
    assert_same_answer(local.metrics_of(sums, asked["method"]), whole)


def test_staleness_is_merged_too(local: cw.Client) -> None:
    batch = {**ragged_batch(), "method": "token_tis", "policy_version": 9, "partial_sums": True}
    versions = np.random.default_rng(2).integers(-1, 10, batch["response_mask"].shape)
    batch["policy_versions"] = versions.astype(np.int32)
    whole = local.correct(**batch)
    sums = [local.correct(**part).sums for part in split(batch, 6, seed=4)]
    assert_same_sums(local.merge(sums), whole.sums or sums[0])
    totals = local.metrics_of(sums, "token_tis")
    assert totals.staleness == whole.staleness
    assert_same_answer(totals, whole)


@pytest.mark.parametrize("threads", [1, 3])
def test_sums_depend_neither_on_layout_nor_on_threads(threads: int) -> None:
    batch = {**ragged_batch(), "method": LOSS, "partial_sums": True}
    with cw.Client("local:?threads=1") as one, cw.Client(f"local:?threads={threads}") as other:
        expected = one.correct(**batch).sums
        for _ in range(3):  # the third one by a plan
            flat = packed({n: v for n, v in batch.items() if n in ROW_ARRAYS})
            assert other.correct(**flat, **_settings(batch)).sums == expected
            assert other.correct(**batch).sums == expected
        assert expected is not None


def _settings(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name not in ROW_ARRAYS}


@pytest.mark.server_only
@pytest.mark.parametrize("transport", ["unary", "stream", "shared_memory"])
def test_the_same_sums_by_every_transport(
    sharing: ServerProcess, local: cw.Client, transport: Any
) -> None:
    batch = {**ragged_batch(), "method": LOSS, "partial_sums": True}
    expected = local.correct(**batch)
    with cw.Client(sharing.address, transport=transport) as client:
        for _ in range(3):
            result = client.correct(**batch)
            assert result.sums == expected.sums
        assert result.sums is not None
        totals = client.metrics_of(result.sums, LOSS)
        assert_same_answer(totals, expected)
        assert client.merge([result.sums, result.sums]) == local.merge([result.sums] * 2)


def test_asyncio_merges_too(local: cw.Client) -> None:
    batch = {**ragged_batch(), "method": "token_tis", "partial_sums": True}

    async def run() -> cw.StepTotals:
        async with counterweight_rl.aio.Client("local:") as client:
            sums = [(await client.correct(**part)).sums for part in split(batch, 3, seed=5)]
            merged = await client.merge([each for each in sums if each is not None])
            return await client.metrics_of(merged, "token_tis")

    assert_same_answer(asyncio.run(run()), local.correct(**batch))


def refusal(client: cw.Client, parts: Any, method: Any = None) -> list[tuple[str, str]]:
    with pytest.raises(cw.InvalidRequestError) as caught:
        if method is None:
            client.merge(parts)
        else:
            client.metrics_of(parts, method)
    return [(each.field, each.description) for each in caught.value.violations]


def test_what_does_not_add_up_is_refused_by_name(local: cw.Client) -> None:
    batch = {**ragged_batch(), "partial_sums": True}
    tis = local.correct(**batch, method="token_tis").sums
    other = local.correct(**batch, method=cw.Preset("token_tis", upper=3.0)).sums
    shorter = local.correct(**batch, method="geo_rs_token_tis").sums
    assert tis is not None
    ((field, why),) = refusal(local, [tis, other])
    assert field == "parts"
    assert "are not of one method" in why
    ((field, why),) = refusal(local, [tis, shorter])
    assert field == "parts[1]"
    assert "other lengths than parts[0]" in why
    ((field, why),) = refusal(local, [tis], "seq_tis")
    assert field == "method"
    ((field, why),) = refusal(local, [])
    assert field == "parts"
    lossy = [local.correct(**part, method=LOSS).sums for part in split(batch, 3, seed=6)]
    ((field, why),) = refusal(local, lossy, LOSS)
    assert field == "parts"
    assert "global_counts or omit_loss" in why
    with pytest.raises(TypeError, match=r"parts\[1\] must be PartialSums, not dict"):
        local.merge([tis, {}])  # type: ignore[list-item]


def test_forged_sums_are_refused(local: cw.Client) -> None:
    batch = {**ragged_batch(), "partial_sums": True, "method": "geo_rs_token_tis"}
    good = local.correct(**batch).sums
    assert good is not None
    for at, value in ((0, 1e9), (0, 0.5), (1, -1.0), (2, math.nan), (4, math.inf), (5, 2.0**60)):
        bad = cw.PartialSums(good.sums.copy(), good.maxima)
        bad.sums[at] = value
        ((field, _),) = refusal(local, [bad], "geo_rs_token_tis")
        assert field == "parts[0].sums", at
    for maxima in ([], good.maxima[:3], np.zeros(len(good.maxima)), good.maxima * math.nan):
        ((field, _),) = refusal(local, [cw.PartialSums(good.sums, maxima)], "geo_rs_token_tis")
        assert field == "parts[0].maxima"
    for sums in (good.sums[:-1], np.append(good.sums, 0.0)):
        ((field, _),) = refusal(local, [cw.PartialSums(sums, good.maxima)], "geo_rs_token_tis")
        assert field == "parts[0].sums"
    # Numbers of bins are any.
    for value in (math.inf, -math.inf, math.nan, 1e300):
        odd = cw.PartialSums(good.sums.copy(), good.maxima)
        odd.sums[80:] = value
        local.metrics_of(odd, "geo_rs_token_tis")


def test_without_metrics_sums_are_those_of_the_loss(local: cw.Client) -> None:
    name = "geo_rs_token_tis_ppo_clip"
    batch = {**ragged_batch(), "method": name, "partial_sums": True}
    counts = cw.GlobalCounts(num_tokens=int(batch["response_mask"].sum()))
    batch["global_counts"] = counts
    whole = local.correct(**batch)
    lean = [local.correct(**part, metrics=False).sums for part in split(batch, 3, seed=7)]
    assert lean[0] is not None
    assert lean[0].nbytes < 500
    totals = local.metrics_of(lean, name)
    assert totals.loss == whole.loss
    assert totals.metrics == {}
    ((field, _),) = refusal(local, [lean[0], whole.sums])
    assert field == "parts[1]"


def test_contradictions_are_refused(local: cw.Client) -> None:
    batch = ragged_batch()
    with pytest.raises(cw.InvalidRequestError, match="omit_loss"):
        local.correct(**batch, method=LOSS, omit_loss=True, outputs=["gradient"])


def test_weights_without_the_loss_are_the_same(local: cw.Client) -> None:
    batch = ragged_batch()
    without = {name: batch[name] for name in ROW_ARRAYS[:2] if name in batch}
    without["response_mask"] = batch["response_mask"]
    first = local.correct(**without, method=LOSS, omit_loss=True)
    whole = local.correct(**batch, method=LOSS)
    np.testing.assert_equal(first.weights, whole.weights)
    np.testing.assert_equal(first.keep_mask, whole.keep_mask)
    assert first.loss is None
    assert first.gradient is None
    for name in first.metrics:
        if name != "positive_log_probs":
            assert bits(first.metrics[name]) == bits(whole.metrics[name]), name
