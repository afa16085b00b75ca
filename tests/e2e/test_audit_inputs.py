"""Audits of files that are broken, unknown, or of other systems: named, counted, the rest audited."""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("click")

import pyarrow as pa
import pyarrow.parquet as pq
from command_line import counterweight
from counterweight_rl import audit
from counterweight_rl.audit import engines, folder, line_files, sources
from recorded_logs import Rows, make_rows, table, write

ROWS = make_rows(24, longest=60)


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


def run(place: pathlib.Path, *arguments: str) -> tuple[int, str]:
    done = counterweight("audit", place, "--no-doctor", *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "log", [ROWS], group=8)


def digest(printed: str) -> str:
    found = re.search(r"^digest (\w+)$", printed, re.M)
    assert found is not None, printed
    return found[1]


def test_what_is_whole_is_exit_code_0(place: pathlib.Path) -> None:
    code, printed = run(place)
    assert code == 0
    assert "1 file, 3 row groups, 23 sequences" in printed  # and one without tokens
    assert "Left out" not in printed


def assert_left_out(place: pathlib.Path, sentence: str, *arguments: str) -> str:
    """The bad file is named, and the numbers are those without it."""
    good = run(place / "000.parquet", *arguments)
    code, printed = run(place, *arguments)
    assert code == 1, printed
    assert sentence in printed
    assert digest(printed) == digest(good[1])
    return printed


def test_a_truncated_file(place: pathlib.Path) -> None:
    data = (place / "000.parquet").read_bytes()
    for i, length in enumerate((0, 3, 40, len(data) // 2, len(data) - 1)):
        (place / f"cut{i}.parquet").write_bytes(data[:length])
    printed = assert_left_out(place, "cut3.parquet: cannot be read: it is truncated, or no Parquet")
    assert len(re.findall(r"cut\d\.parquet: cannot be read: .* \(1 row group\)", printed)) == 5


def test_damage_inside(place: pathlib.Path) -> None:
    data = bytearray((place / "000.parquet").read_bytes())
    data[4 : len(data) // 2] = os.urandom(1) * (len(data) // 2 - 4)
    (place / "bad.parquet").write_bytes(data)
    code, printed = run(place)
    assert code == 1
    assert re.search(r"bad\.parquet: cannot be read: ", printed)


def test_a_missing_column(place: pathlib.Path) -> None:
    pq.write_table(table(ROWS, ["response_mask"]), place / "no_mask.parquet")
    pq.write_table(table(ROWS, ["old_log_probs"]), place / "one_side.parquet")
    pq.write_table(table(ROWS, ["rollout_log_probs"]), place / "other_side.parquet")
    printed = assert_left_out(
        place, "no_mask.parquet: lacks response_mask; it has rollout_log_probs, old_log_probs"
    )
    assert "--columns response_mask=NAME names a column (1 row group)" in printed
    assert "one_side.parquet: has no trainer's log-probs: nothing to compare; record" in printed
    assert "other_side.parquet: has no log-probs of the engine: nothing to compare" in printed


def test_two_schemas_in_one_folder(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Files with fewer labels are audited beside others; their tokens have no known version."""
    pq.write_table(table(ROWS, ["policy_versions", "replica"]), place / "001.parquet")
    code, printed = run(place)
    assert code == 0
    assert len(re.findall(r"^unknown +│", printed, re.M)) == 4
    kinds = table(ROWS).set_column(1, "old_log_probs", pa.array([["a"]] * len(ROWS)))
    pq.write_table(kinds, place / "002.parquet")
    pq.write_table(
        table(ROWS).set_column(1, "old_log_probs", pa.array([1.0] * len(ROWS))),
        place / "003.parquet",
    )
    later = table(ROWS).replace_schema_metadata({"counterweight.schema_version": "2"})
    pq.write_table(later, place / "004.parquet")
    code, changed = run(place)
    assert code == 1
    assert digest(changed) == digest(printed)
    assert "002.parquet: old_log_probs must have lists of numbers, not of string" in changed
    assert "003.parquet: old_log_probs must be a column of lists, not double" in changed
    assert "004.parquet: has schema version 2, and this release reads 1 at most" in changed


def test_rows_of_different_lengths(tmp_path: pathlib.Path) -> None:
    good = write(tmp_path / "good", [ROWS[3:]])
    bad = [dict(row) for row in ROWS]
    bad[0]["old_log_probs"] = bad[0]["old_log_probs"][1:]
    bad[1]["response_mask"] = None
    bad[2]["policy_versions"] = None
    place = write(tmp_path / "log", [bad])
    code, printed = run(place)
    assert code == 1
    assert "rows whose response_mask is null (1 row)" in printed
    assert "rows whose old_log_probs and response_mask differ in length (1 row)" in printed
    assert "rows whose policy_versions and response_mask differ in length (1 row)" in printed
    assert digest(printed) == digest(run(good)[1])


def test_masks_are_bits_bytes_or_numbers(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Also where a row was left out before, so that the rest does not begin with a byte."""
    rows = [{**ROWS[0], "old_log_probs": np.float32([-1])}, *ROWS]
    found = set()
    for kind in (pa.bool_(), pa.uint8(), pa.int64(), pa.float32()):
        whole = table(rows)
        mask = whole.column("response_mask").cast(pa.list_(kind))
        write(tmp_path / str(kind), [ROWS])
        cast = whole.set_column(2, "response_mask", mask)
        pq.write_table(cast, tmp_path / str(kind) / "000.parquet")
        code, printed = run(tmp_path / str(kind))
        assert code == 1
        assert "differ in length (1 row)" in printed
        found.add(digest(printed))
    assert found == {digest(run(place)[1])}


def test_values_that_no_mask_has(place: pathlib.Path) -> None:
    mask = pa.array([[2.0] * len(row["response_mask"]) for row in ROWS])
    pq.write_table(table(ROWS).set_column(2, "response_mask", mask), place / "two.parquet")
    assert_left_out(place, "two.parquet: response_mask must be 0 or 1 everywhere")


def test_a_file_that_changes_while_it_is_read(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = digest(run(place)[1])
    write(place, [ROWS, ROWS], group=8)
    read = sources.read

    def changing(path: pathlib.Path, group: int, spec: audit.Spec) -> Any:
        rows = read(path, group, spec)
        if path.name == "001.parquet" and group == 1:
            pq.write_table(table(ROWS[:9]), path, row_group_size=8)
        return rows

    monkeypatch.setattr(sources, "read", changing)
    code, printed = run(place)
    assert code == 1
    assert "001.parquet: changed while it was read (3 row groups)" in printed
    assert digest(printed) == whole


def test_a_file_that_vanishes(place: pathlib.Path) -> None:
    write(place, [ROWS, ROWS], group=8)
    units = audit.units(place)
    (place / "001.parquet").unlink()
    spec = audit.Spec(doctor=False)
    made = folder.audit(units, spec, lambda u, s: engines.in_processes(u, s, 1), lambda done: None)
    found = audit.report(made.to_bytes(), spec)
    assert [problem.sentence for problem in found.problems] == [
        "cannot be read: No such file or directory"
    ]
    assert found.digest == digest(run(place)[1])


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("1.jsonl", {"input": "", "output": "", "gts": "", "score": 1}, "verl's rollout dump has"),
        ("a.jsonl", {"head_version": 1, "tail_version": 2, "reward": 1}, "AReaL's dump has"),
        ("s.jsonl", {"sampling_client_step": 1, "total_reward": 0}, "Tinker's rollout summaries"),
        ("c.parquet", {"prompt": "", "completion": "", "advantage": 1.0}, "TRL's log of"),
        ("t.parquet", {"trajectory": "[]"}, "prime-rl's upload has"),
        ("d.pkl", {}, "SkyRL's dump is a pickle, which is not opened"),
        ("d.pt", {}, "slime's debug data is a pickle, which is not opened"),
    ],
)
def test_files_without_log_probs_are_refused_by_what_they_lack(
    tmp_path: pathlib.Path, name: str, row: dict[str, Any], sentence: str
) -> None:
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / name)
    else:
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    code, printed = run(tmp_path)
    assert code == 2
    assert f"{name}: {sentence}" in printed
    assert "no token that was audited" in printed
    if row:
        assert 'record them with counterweight_rl.Client(..., record="DIR")' in printed


def nemo(rows: Rows) -> list[dict[str, Any]]:
    """NeMo-RL's columns: a first position without a log-prob, and padding."""
    return [
        {
            "generation_logprobs": [0.0, *map(float, row["rollout_log_probs"]), 0.0, 0.0],
            "prev_logprobs": [0.0, *map(float, row["old_log_probs"]), 0.0, 0.0],
            "token_loss_mask": [0, *map(int, row["response_mask"]), 1, 1],
            "sample_loss_mask": 1.0,
            "input_lengths": len(row["response_mask"]) + 1,
        }
        for row in rows
    ]


def lines(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FEW = [row for row in make_rows(24, seed=3, longest=60) if np.isfinite(row["old_log_probs"]).all()]


def test_nemo_rls_train_data_is_shifted(tmp_path: pathlib.Path) -> None:
    masked = {**nemo(FEW)[0], "sample_loss_mask": 0}
    lines(tmp_path / "nemo" / "train_data_step7.jsonl", [*nemo(FEW), masked])
    code, printed = run(tmp_path / "nemo", "--by", "position", "--json")
    assert code == 0
    same = write(tmp_path / "same", [FEW])
    assert (
        json.loads(printed)["drift"]
        == json.loads(run(same, "--by", "position", "--json")[1])["drift"]
    )
    assert "7    │" in run(tmp_path / "nemo", "--by", "step")[1]


def test_prime_rls_token_export(tmp_path: pathlib.Path) -> None:
    rows = [
        {
            "step": 4,
            "rank": 0,
            "inference_logprobs": list(map(float, row["rollout_log_probs"])),
            "trainer_logprobs": list(map(float, row["old_log_probs"])),
            "loss_mask": list(map(bool, row["response_mask"])),
        }
        for row in FEW
    ]
    place = tmp_path / "run" / "token_exports"
    lines(place / "step_4" / "rank_0.jsonl", rows)
    code, printed = run(tmp_path)
    assert code == 2
    assert "prime-rl has not finished this step" in printed
    (place / "step_4" / "STABLE").touch()
    code, printed = run(tmp_path, "--by", "position", "--json")
    assert code == 0
    same = write(tmp_path / "same", [FEW])
    ours = json.loads(run(same, "--by", "position", "--json")[1])
    assert json.loads(printed)["drift"] == ours["drift"]


def test_lines_that_are_wrong_are_counted(tmp_path: pathlib.Path) -> None:
    good, bad = tmp_path / "good" / "a.jsonl", tmp_path / "bad" / "a.jsonl"
    lines(good, nemo(FEW[2:]))
    rows = nemo(FEW)
    rows[0]["prev_logprobs"].pop()
    rows[1]["token_loss_mask"] = ["a"]
    lines(bad, rows)
    bad.write_text(bad.read_text() + "3\n\n" + json.dumps(rows[3])[:-30])
    code, printed = run(bad)
    assert code == 1
    assert digest(printed) == digest(run(good)[1])
    for sentence in (
        "rows whose columns differ in length (1 row)",
        "rows with a column that is no list of numbers, or of another length (1 row)",
        "lines that are no JSON; a last one may be cut off (1 row)",
        "lines that are no JSON object (1 row)",
    ):
        assert sentence in printed


def test_lines_belong_to_the_chunk_that_they_begin_in(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(tmp_path / "a.jsonl", nemo(FEW))
    whole = digest(run(tmp_path)[1])
    for size in (1000, 4097, len(json.dumps(nemo(FEW)[0])) + 1):
        monkeypatch.setattr(line_files, "CHUNK_BYTES", size)
        assert len(audit.units(tmp_path)) > 1
        assert digest(run(tmp_path)[1]) == whole


def test_npz_files(tmp_path: pathlib.Path) -> None:
    joined = {
        name: np.concatenate([row[name] for row in FEW])
        for name in ("rollout_log_probs", "old_log_probs", "response_mask", "policy_versions")
    }
    lengths = np.array([len(row["response_mask"]) for row in FEW])
    trained = np.array([row["policy_version"] for row in FEW])
    (tmp_path / "log").mkdir()
    np.savez(tmp_path / "log" / "a.npz", **joined, sequence_lengths=lengths, policy_version=trained)
    by = ("--by", "staleness,step,position")
    same = write(tmp_path / "same", [FEW])
    code, printed = run(tmp_path / "log", *by)
    assert (code, digest(printed)) == (0, digest(run(same, *by)[1]))
    # A padded batch, and its file cut off.
    ones = np.full((2, 3), -1, np.float32)
    np.savez(tmp_path / "log" / "b.npz", rollout_log_probs=ones, old_log_probs=ones,
             response_mask=np.ones((2, 3)))  # fmt: skip
    data = (tmp_path / "log" / "b.npz").read_bytes()
    (tmp_path / "log" / "c.npz").write_bytes(data[:200])
    np.savez(tmp_path / "log" / "d.npz", rollout_log_probs=ones, old_log_probs=ones[:, 1:],
             response_mask=np.ones((2, 3)))  # fmt: skip
    code, printed = run(tmp_path / "log")
    assert code == 1
    assert f"{len([r for r in FEW if len(r['response_mask'])]) + 2} sequences" in printed
    assert "c.npz: cannot be read: " in printed
    assert "d.npz: old_log_probs has shape (2, 2), and response_mask (2, 3)" in printed


def test_columns_of_other_names(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    names = ["mu", "pi", *table(ROWS).column_names[2:]]
    (tmp_path / "other").mkdir()
    pq.write_table(table(ROWS).rename_columns(names), tmp_path / "other" / "a.parquet")
    code, printed = run(tmp_path / "other")
    assert code == 2
    assert "lacks rollout_log_probs, old_log_probs; it has mu, pi, response_mask" in printed
    named = ("--columns", "rollout_log_probs=mu", "--columns", "old_log_probs=pi")
    code, printed = run(tmp_path / "other", *named)
    assert code == 0
    assert digest(printed) == digest(run(place)[1])
    code, printed = run(tmp_path / "other", "--columns", "rollout_log_probs=nu")
    assert "has no column nu, as which --columns names rollout_log_probs" in printed


def test_wrong_command_lines(tmp_path: pathlib.Path, place: pathlib.Path) -> None:
    def refused(sentence: str, *arguments: object) -> None:
        done = counterweight("audit", *arguments)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert done.stdout == ""

    refused("there is no such file or folder", tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    refused("has no .parquet, .jsonl or .npz file", tmp_path / "empty")
    refused("--columns must be ROLE=NAME; got 'a'", place, "--columns", "a")
    refused("there is no role 'mask'", place, "--columns", "mask=m")
    refused("there is no 'age'", place, "--by", "age")
    refused("--since must be a time such as", place, "--since", "yesterday")
    refused("--methods opsm:", place, "--methods", "opsm")
    refused("--on=ray and --processes exclude", place, "--on=ray", "--processes=2")
    refused("exclude each other", place, "--since", "1d", "--state", tmp_path / "s")
