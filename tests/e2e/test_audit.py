"""Audits: the numbers of one call with all rows, however the rows lie in files and whatever computes."""

from __future__ import annotations

import functools
import itertools
import pathlib
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq
from counterweight_rl import audit
from counterweight_rl.audit import engines, folder, keys, part, work
from recorded_logs import Rows, batch, make_rows, write

METHODS = {
    "token_tis": cw.Preset("token_tis"),
    "icepop:lower=0.8:upper=1.2": cw.Preset("icepop", lower=0.8, upper=1.2),
    "geo_rs_token_tis": cw.Preset("geo_rs_token_tis"),
    "bypass_icepop": cw.Preset("bypass_icepop"),
}
SPEC = audit.Spec(METHODS)
ROWS = make_rows()


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


def parts(place: pathlib.Path, spec: audit.Spec = SPEC) -> list[bytes]:
    return [audit.unit(each.path, each.group, spec) for each in audit.units(place)]


def report(place: pathlib.Path, spec: audit.Spec = SPEC) -> audit.Report:
    return audit.report(functools.reduce(audit.merge, parts(place, spec)), spec)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> audit.Report:
    return report(write(tmp_path_factory.mktemp("whole") / "log", [ROWS]))


def bits(value: float) -> bytes:
    return struct.pack("=d", value)


def assert_same(actual: Mapping[str, float], expected: Mapping[str, float]) -> None:
    assert actual.keys() == expected.keys()
    wrong = {n: (actual[n], expected[n]) for n in actual if bits(actual[n]) != bits(expected[n])}
    assert not wrong


def test_the_numbers_are_those_of_one_call(whole: audit.Report) -> None:
    with cw.Client("local:") as client:
        direct = client.correct(method="none", **batch(ROWS))
        assert_same(whole.metrics, direct.metrics)
        assert whole.metrics["non_finite_tokens"] == 1
        buckets = {b.label: b for b in direct.staleness.buckets if b.tokens}
        *known, unknown = whole.drift["staleness"]
        assert [d.value for d in known] == list(buckets)
        for drift in known:
            bucket = buckets[drift.value]
            assert (drift.tokens, drift.kl, drift.k3) == (bucket.tokens, bucket.kl, bucket.k3)
        assert (unknown.value, unknown.tokens) == ("unknown", direct.staleness.unknown_tokens)
        for effect in whole.effects:
            given = batch(ROWS)
            del given["policy_versions"], given["policy_version"]
            if effect.method.startswith("bypass"):
                given["current_log_probs"] = given.pop("old_log_probs")
            result = client.correct(
                method=METHODS[effect.method], outputs=["keep_mask"], omit_loss=True, **given
            )
            assert_same(effect.metrics, result.metrics)


def positions(row: dict[str, Any]) -> np.ndarray:
    """Positions behind the first token that counts, which is the row's first."""
    return np.arange(len(row["response_mask"]))


def version(row: dict[str, Any]) -> np.ndarray:
    return np.where(row["policy_versions"] < 0, -1, row["policy_versions"])


def cause(row: dict[str, Any]) -> str:
    """All tokens count, or some other token of their version does."""
    versions = row["policy_versions"]
    if not len(versions) or versions.min() < 0:
        return "unknown"
    return "engine alone" if versions.min() == row["policy_version"] else "engine and staleness"


def each(name: str) -> Callable[[dict[str, Any]], np.ndarray]:
    return lambda row: np.full(len(row["response_mask"]), row[name])


CASES: dict[str, tuple[Callable[[dict[str, Any]], np.ndarray], Callable[[str], Any]]] = {
    "cause": (
        lambda row: np.full(len(row["response_mask"]), cause(row)),
        lambda value: lambda x: x == value,
    ),
    "step": (each("step"), lambda value: lambda x: x == int(value)),
    "replica": (each("replica"), lambda value: lambda x: x == value),
    "version": (
        version,
        lambda value: lambda x: x == (-1 if value == "unknown" else int(value)),
    ),
    "position": (
        positions,
        lambda value: lambda x: (x >= int(value)) & (x < (2 * int(value) or 32)),
    ),
    "length": (
        lambda row: np.full(len(row["response_mask"]), row["response_mask"].sum()),
        lambda value: lambda x: (x <= int(value)) & (x > int(value) // 2),
    ),
}


@pytest.mark.parametrize("key", CASES)
def test_a_value_has_the_drift_of_a_call_with_its_tokens(whole: audit.Report, key: str) -> None:
    assert_drift_of_calls(whole, key, ROWS)


def test_new_weights_in_the_middle_of_long_rows(tmp_path: pathlib.Path) -> None:
    """Sums of a long row's pieces, which begin where the engine loaded weights."""
    rows = make_rows(16, seed=5, longest=20_000)
    for row in rows[::2]:
        row["policy_versions"][len(row["policy_versions"]) // 5 :] += 1
    found = report(write(tmp_path / "log", [rows]), audit.Spec(by=["version"], doctor=False))
    assert_drift_of_calls(found, "version", rows)


def test_versions_that_alternate_rows_that_begin_late_and_empty_ones(
    tmp_path: pathlib.Path,
) -> None:
    rows = make_rows(20, seed=6, longest=300)
    for i, row in enumerate(rows):
        place = np.arange(len(row["response_mask"]))
        row["policy_versions"] = (90 + place % (i % 3 + 1)).astype(np.int32)
        row["response_mask"] = row["response_mask"] & (place >= i) & (i % 4 > 0)
    spec = audit.Spec(by=["version", "length", "position"], doctor=False)
    found = report(write(tmp_path / "log", [rows], group=7), spec)
    assert_drift_of_calls(found, "version", rows)
    assert_drift_of_calls(found, "length", rows)
    assert found.whole is not None
    assert sum(drift.tokens for drift in found.drift["position"]) == found.whole.tokens


def assert_drift_of_calls(whole: audit.Report, key: str, rows: Rows) -> None:
    read, within = CASES[key]
    drift = whole.drift[key]
    assert whole.whole is not None
    assert sum(found.tokens for found in drift) == whole.whole.tokens
    assert len(drift) >= 2
    with cw.Client("local:") as client:
        for found in drift:
            inside = within(found.value)
            mask = [row["response_mask"] & inside(read(row)) for row in rows]
            if not any(m.any() for m in mask):
                assert found.tokens == 0
                continue
            metrics = client.correct(method="none", **batch(rows, mask)).metrics
            expected = (metrics["tokens"], metrics["kl"], metrics["k3"], metrics["chi2_token"])
            assert (found.tokens, found.kl, found.k3, found.chi2) == expected


def test_causes_are_those_of_the_doctor(tmp_path: pathlib.Path) -> None:
    """In parts, against one call with all rows."""
    rows = [
        {**row, "old_log_probs": np.nan_to_num(row["old_log_probs"], nan=-1.0)}
        for i, row in enumerate(make_rows(80, seed=2))
        if i % 11  # these have no versions
    ]
    with cw.Client("local:") as client:
        given = batch(rows)
        del given["non_finite"]
        found = client.diagnose(**given).attribution
    assert found is not None
    expected = found.causes
    assert expected.k3_engine is not None
    assert expected.k3_engine_staleness is not None
    for group in (1_000, 9):
        causes = report(write(tmp_path / "log", [rows], group=group)).causes
        assert causes is not None
        assert causes.fresh_tokens == expected.fresh_tokens
        assert causes.k3 == pytest.approx(expected.k3 / found.tokens, rel=1e-5)
        assert causes.engine == pytest.approx(expected.k3_engine / found.tokens, rel=1e-5)
        rest = (expected.k3_engine_staleness - expected.k3_engine) / found.tokens
        assert causes.staleness == pytest.approx(rest, rel=1e-5)


def test_causes_need_versions_and_fresh_tokens(tmp_path: pathlib.Path) -> None:
    def causes(rows: Rows) -> audit.Causes | None:
        return report(write(tmp_path / "log", [rows]), audit.Spec(doctor=False)).causes

    assert (
        causes([{**row, "policy_versions": row["policy_versions"] * 0 - 1} for row in ROWS]) is None
    )
    stale = [{**row, "policy_version": 1000} for row in ROWS]
    found = causes(stale)
    assert found is not None
    assert (found.engine, found.staleness, found.fresh_tokens) == (None, None, 0)
    # Versions of the future are none.
    assert causes([{**row, "policy_version": 3} for row in ROWS]) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_digest_does_not_depend_on_files_and_row_groups(
    whole: audit.Report, tmp_path: pathlib.Path, seed: int
) -> None:
    generator = random.Random(seed)
    rows = generator.sample(ROWS, len(ROWS))
    cuts = sorted(generator.choices(range(1, len(rows)), k=3))
    edges = [0, *cuts, len(rows)]
    files: list[Rows] = [rows[a:b] for a, b in itertools.pairwise(edges) if a < b]
    place = write(tmp_path / "log", files, group=1 + 6 * seed)
    made = parts(place)
    generator.shuffle(made)
    # Any tree of merges.
    while len(made) > 1:
        made.insert(0, audit.merge(made.pop(), made.pop(generator.randrange(len(made)))))
    found = audit.report(made[0], SPEC)
    assert found.digest == whole.digest
    assert repr((found.drift, found.effects)) == repr((whole.drift, whole.effects))


def test_the_digest_depends_on_the_rows(whole: audit.Report, tmp_path: pathlib.Path) -> None:
    assert report(write(tmp_path / "log", [ROWS[1:]])).digest != whole.digest


@pytest.mark.parametrize("tokens", [1, 1 << 40])
def test_properties_may_be_split_together_or_each_by_itself(
    whole: audit.Report, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    passes: list[int] = []
    groups = keys._groups

    def counted(columns: Any, of: int) -> Any:
        found = groups(columns, of)
        passes.append(len(found))
        return found

    monkeypatch.setattr(keys, "_PART_TOKENS", tokens)
    monkeypatch.setattr(keys, "_groups", counted)
    assert report(write(tmp_path / "log", [ROWS])).digest == whole.digest
    assert passes == [1 if tokens == 1 else 5]


def test_parts_by_one_pass_are_those_of_calls(
    whole: audit.Report, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finite = [row for row in ROWS if not np.isnan(row["old_log_probs"]).any()]
    place = write(tmp_path / "log", [finite], group=20)
    calls: list[int] = []
    correct = cw.Client.correct

    def counted(self: cw.Client, **call: Any) -> Any:
        calls.append(len(call["sequence_lengths"]))
        return correct(self, **call)

    audit.unit(str(place / "000.parquet"), 0, SPEC)
    monkeypatch.setattr(cw.Client, "correct", counted)
    in_passes = parts(place)
    assert not calls
    monkeypatch.setattr(work, "_library", lambda target: None)
    assert parts(place) == in_passes
    assert len(calls) > 50
    # NaN beside versions needs a call for each part, of its row group alone.
    monkeypatch.undo()
    monkeypatch.setattr(cw.Client, "correct", counted)
    calls.clear()
    assert report(write(tmp_path / "with_nan", [ROWS])).digest == whole.digest
    assert len(calls) > 10


def test_the_end_of_a_file_is_read_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each of its row groups, which it names all."""
    read: list[pathlib.Path] = []
    metadata = pq.read_metadata
    monkeypatch.setattr(pq, "read_metadata", lambda path: read.append(path) or metadata(path))
    place = write(tmp_path / "log", [ROWS], group=2)
    assert len(parts(place)) == 30
    assert read == [place / "000.parquet"]


def test_processes_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    place = write(tmp_path / "log", [ROWS[:40], ROWS[40:]], group=7)
    found = list(engines.in_processes(audit.units(place), SPEC, 2))
    assert found == parts(place)


def test_many_vectors_are_rounded_before_they_lose_bits(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, whole: audit.Report
) -> None:
    monkeypatch.setattr(part, "_MOST", 3)
    assert report(write(tmp_path / "log", [ROWS], group=2)).digest == whole.digest


def test_a_unit_is_not_added_twice(tmp_path: pathlib.Path) -> None:
    first, second, *_ = parts(write(tmp_path / "log", [ROWS], group=20))
    both = audit.merge(first, second)
    with pytest.raises(ValueError, match="row group 1 is in both parts"):
        audit.merge(second, both)
    with pytest.raises(ValueError, match="different specs"):
        audit.merge(first, parts(tmp_path / "log", audit.Spec())[1])
    with pytest.raises(ValueError, match="no part of an audit"):
        audit.merge(first, b"something else")


def test_a_property_that_is_named_twice_is_refused() -> None:
    """Its tokens would be added twice."""
    with pytest.raises(ValueError, match="by: step is named twice"):
        audit.Spec(by=("step", "length", "step"))


def test_a_part_of_another_release_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine,) = parts(write(tmp_path / "log", [ROWS]))
    monkeypatch.setattr(part, "FORMAT", part.FORMAT - 1)
    (older,) = parts(tmp_path / "log")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="has format 1; this release reads 2"):
        audit.merge(mine, older)


def test_the_doctors_findings_name_their_file(tmp_path: pathlib.Path) -> None:
    shifted = [
        {**row, "old_log_probs": np.roll(row["old_log_probs"], 1)} for row in make_rows(seed=1)
    ]
    place = write(tmp_path / "log", [ROWS, shifted], group=30)
    found = report(place)
    wrong = [fault for fault in found.faults if fault.name == "shifted"]
    assert [(pathlib.Path(f.file).name, f.units, f.group) for f in wrong] == [("001.parquet", 2, 0)]
    assert not report(place, audit.Spec(doctor=False)).faults


def test_methods_that_logs_cannot_serve_are_refused() -> None:
    def refused(method: str, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            work.check_methods(audit.Spec({method: cw.Preset(method)}))

    refused("token_tsi", "token_tsi")
    refused("opsm", "advantages")
    with pytest.raises(ValueError, match="no 'versoin', but staleness"):
        audit.Spec(by=["versoin"])
    with pytest.raises(ValueError, match="no role 'mask'"):
        audit.Spec(columns={"mask": "m"})


def test_a_folder_is_audited_file_by_file(whole: audit.Report, tmp_path: pathlib.Path) -> None:
    place = write(tmp_path / "log", [ROWS[:30], ROWS[30:]], group=9)
    units = audit.units(place)
    seen: list[int] = []
    made = folder.audit(
        units, SPEC, functools.partial(engines.in_processes, processes=1), seen.append
    )
    assert audit.report(made.to_bytes(), SPEC).digest == whole.digest
    assert seen[-1] == sum(unit.num_bytes for unit in units)
    assert sorted(seen) == seen
    assert part.from_bytes(made.to_bytes()).to_bytes() == made.to_bytes()


def test_an_interrupted_audit_has_what_is_complete(tmp_path: pathlib.Path) -> None:
    place = write(tmp_path / "log", [ROWS[:30], ROWS[30:]], group=10)

    def interrupt(done: int) -> None:
        if done > units[0].num_bytes * 4:
            raise KeyboardInterrupt

    units = audit.units(place)
    engine = functools.partial(engines.in_processes, processes=1)
    found = audit.report(folder.audit(units, SPEC, engine, interrupt).to_bytes(), SPEC)
    assert [problem.sentence[:12] for problem in found.problems] == ["interrupted:"]
    assert found.digest == report(place / "000.parquet").digest
