"""The command audit: tables, the report with pictures, times, the state, and processes."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import pathlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("click")

import counterweight_rl as cw
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import counterweight
from recorded_logs import batch, make_rows, table, write
from server_process import ServerProcess

ROWS = make_rows(40, longest=200)
METHODS = "token_tis,geo_rs_token_tis:keep_lower=0.95:keep_upper=1.05"


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "log", [ROWS[:20], ROWS[20:]], group=6)


def run(place: pathlib.Path, *arguments: object) -> str:
    done = counterweight("audit", place, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def digest(printed: str) -> str:
    return printed.rsplit("digest ", 1)[1].strip()


def test_tables_fit_into_80_columns_and_name_every_key(place: pathlib.Path) -> None:
    printed = run(place, "--methods", METHODS)
    for title in (
        "versions behind",
        "cause",
        "step",
        "version that sampled",
        "position in the response",
        "tokens of the response",
        "replica",
    ):
        assert f"\nDrift by {title}\n" in printed
    tables = [line for line in printed.splitlines() if "│" in line or "┃" in line]
    assert len(tables) > 30
    assert max(map(len, tables)) <= 80
    assert "keep_lower=0.95" in printed
    assert re.search(r"^k3 0\.\S+ = engine 0\.\S+, staleness 0\.\S+$", printed, re.M)
    assert re.fullmatch(r"[0-9a-f]{16}", digest(printed))


def test_many_steps_are_shown_evenly(tmp_path: pathlib.Path) -> None:
    rows = [
        {**row, "step": i, "policy_version": i} for i, row in enumerate(make_rows(100, longest=40))
    ]
    printed = run(write(tmp_path / "log", [rows]), "--by", "step", "--no-doctor")
    shown = re.findall(r"^(\d+|\.\.\.) ", printed, re.M)
    assert len([each for each in shown if each != "..."]) == 12
    assert (shown[0], shown[-1]) == ("0", "99")
    assert "..." in shown


def test_the_engine_of_many_processes_prints_the_same(place: pathlib.Path) -> None:
    assert run(place, "--processes", 2) == run(place)


def test_a_server_as_the_engine_prints_the_same(place: pathlib.Path, server: ServerProcess) -> None:
    printed = run(place, "--methods", METHODS)
    before = server.metric("counterweight_sequences_total")
    flag = run(place, "--methods", METHODS, "--target", server.address, "--processes", 2)
    assert flag == printed
    assert server.metric("counterweight_sequences_total") > before
    between = server.metric("counterweight_sequences_total")
    changes = {"COUNTERWEIGHT_TARGET": server.address}
    done = counterweight("audit", place, "--methods", METHODS, changes=changes)
    assert done.stdout == printed
    assert server.metric("counterweight_sequences_total") > between


def test_an_engine_that_does_not_answer_ends_the_audit(
    place: pathlib.Path, start_server: Callable[..., ServerProcess]
) -> None:
    frozen = start_server()
    frozen.freeze()
    done = counterweight("audit", place, "--target", frozen.address, "--timeout", "1")
    assert done.returncode != 0
    assert "deadline" in done.stderr.lower()
    assert "digest" not in done.stdout


def test_an_engine_that_requires_a_token_gets_it(
    place: pathlib.Path, tmp_path: pathlib.Path, start_server: Callable[..., ServerProcess]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret-of-the-audit")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"audit sha256:{hashlib.sha256(b'secret-of-the-audit').hexdigest()}\n")
    guarded = start_server(f"--tokens={tokens}")
    flags = ("--target", guarded.address, "--processes", "2")
    without = counterweight("audit", place, *flags)
    assert without.returncode != 0
    assert "token" in without.stderr
    changes = {"COUNTERWEIGHT_TOKEN_FILE": str(token)}
    done = counterweight("audit", place, *flags, changes=changes)
    assert done.stdout == run(place)


def test_a_malformed_target_is_named_where_it_was_written(
    place: pathlib.Path,
) -> None:
    done = counterweight("audit", place, "--target", "host:99999")
    assert done.returncode == 2
    assert "--target" in done.stderr
    done = counterweight("audit", place, changes={"COUNTERWEIGHT_TARGET": "host:99999"})
    assert done.returncode == 2
    assert "COUNTERWEIGHT_TARGET" in done.stderr


def test_json_has_all_numbers(place: pathlib.Path) -> None:
    found = json.loads(run(place, "--methods", METHODS, "--json"))
    with cw.Client("local:") as client:
        metrics = client.correct(method="none", **batch(ROWS)).metrics
    assert found["whole"]["k3"] == metrics["k3"]
    assert found["digest"] == digest(run(place, "--methods", METHODS))
    assert [each["method"] for each in found["effects"]] == METHODS.split(",")


def test_the_page_has_pictures_and_nothing_from_elsewhere(
    place: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    page = tmp_path / "report.html"
    printed = run(place, "--methods", METHODS, "--html", page)
    assert printed.endswith(f"wrote {page}\n")
    text = page.read_text()
    assert text.count("<svg") == 7
    assert digest(run(place, "--methods", METHODS)) in text
    assert not re.search(r"https?://|src=|@import|<script", text)
    for picture in re.findall(r"<svg.*?</svg>", text, re.S):
        assert ET.fromstring(picture).tag == "svg"
    assert "nan" not in text


def test_names_of_files_are_no_markup(tmp_path: pathlib.Path) -> None:
    place = write(tmp_path / "<b>", [ROWS])
    (place / "<i>.parquet").write_text("")
    page = tmp_path / "report.html"
    assert counterweight("audit", place, "--html", page).returncode == 1
    assert "<b>/" not in page.read_text()
    assert "&lt;i&gt;.parquet" in page.read_text()


def test_rows_recorded_earlier_are_left_out(tmp_path: pathlib.Path) -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    times = [now - datetime.timedelta(hours=i) for i in range(40)]
    timed = table(ROWS).append_column("recorded_at", pa.array(times, pa.timestamp("ms", "UTC")))
    (tmp_path / "log").mkdir()
    pq.write_table(timed, tmp_path / "log" / "a.parquet")
    late = write(tmp_path / "late", [ROWS[:10]])
    # Files without times have that of the file.
    pq.write_table(table(ROWS), tmp_path / "log" / "b.parquet")
    os.utime(tmp_path / "log" / "b.parquet", (0, times[20].timestamp()))
    since = (now - datetime.timedelta(hours=9.5)).isoformat()
    expected = digest(run(late))
    assert digest(run(tmp_path / "log", "--since", since)) == expected
    assert digest(run(tmp_path / "log", "--since", "570m")) == expected
    assert digest(run(tmp_path / "log", "--since", "2d")) != expected


def test_a_state_reads_new_files_only(
    place: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = digest(run(place, "--methods", METHODS))
    state = tmp_path / "state"
    flags = ("--methods", METHODS, "--state", state)
    hidden = place / "001.parquet"
    hidden.rename(tmp_path / "later")
    first = run(place, *flags)
    assert digest(first) != whole
    assert run(place, *flags) == first
    (tmp_path / "later").rename(hidden)
    # Even where the files of yesterday are gone.
    (place / "000.parquet").unlink()
    assert digest(run(place, *flags)) == whole
    assert digest(run(place, *flags)) == whole


def test_a_state_is_refused_rather_than_mixed(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    state = tmp_path / "state"
    run(place, "--state", state)

    def refused(sentence: str, *arguments: object) -> None:
        done = counterweight("audit", place, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr

    refused("of an audit with other --methods", "--state", state, "--methods", "token_tis")
    (tmp_path / "text").write_text("x" * 100)
    refused("no part of an audit", "--state", tmp_path / "text")
    write(place, [ROWS[:21]])
    refused("000.parquet has changed since --state has it", "--state", state)


def test_files_that_were_left_out_are_tried_again(
    place: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    whole = digest(run(place))
    good = (place / "001.parquet").read_bytes()
    (place / "001.parquet").write_bytes(good[:-9])
    assert counterweight("audit", place, "--state", tmp_path / "state").returncode == 1
    (place / "001.parquet").write_bytes(good)
    assert digest(run(place, "--state", tmp_path / "state")) == whole


def test_a_recorded_run_is_audited(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    with cw.Client("local:", record=log) as client:
        for step in range(100, 103):
            of_step = [row for row in ROWS if row["step"] == step]
            given = batch(of_step)
            given["policy_versions"] = given["policy_versions"] - (1 << 30) + step
            given["policy_versions"][given["policy_versions"] < 0] = -1
            given["policy_version"] = step
            client.correct(method="token_tis", step=step, replica="r0", **given)
    assert client.recorded == len(ROWS)
    flags = ("--by", "staleness,step,version,position,length", "--no-doctor")
    assert digest(run(log, *flags)) == digest(run(write(tmp_path / "same", [ROWS]), *flags))


def test_faults_are_printed_by_file(tmp_path: pathlib.Path) -> None:
    reversed_rows = [{**row, "old_log_probs": row["old_log_probs"][::-1]} for row in make_rows(30)]
    printed = run(write(tmp_path / "log", [ROWS, reversed_rows]))
    assert "Findings of the doctor, by file" in printed
    assert re.search(r"^(error|warning) +\w+: .*001\.parquet, row group 0", printed, re.M)
