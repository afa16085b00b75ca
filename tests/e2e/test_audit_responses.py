"""Audits of rows whose engine's log-probs are in responses of vLLM and SGLang."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("click")

import pyarrow as pa
import pyarrow.parquet as pq
from command_line import counterweight
from counterweight_rl.audit.responses import Responses
from recorded_logs import Rows, make_rows, table, write
from test_audit_inputs import digest

ROWS = [
    {**row, "old_log_probs": np.nan_to_num(row["old_log_probs"], nan=-1.0)}
    for row in make_rows(24, seed=4, longest=60)
    if len(row["response_mask"])
]
Record = Callable[[str, dict[str, Any]], dict[str, Any]]


def numbers(row: dict[str, Any]) -> list[float]:
    return list(map(float, row["rollout_log_probs"]))


def chat(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """The answer of /v1/chat/completions."""
    content = [
        {"token": "a", "logprob": value, "bytes": [97], "top_logprobs": []}
        for value in numbers(row)
    ]
    choice = {"index": 0, "message": {"content": "a"}, "logprobs": {"content": content}}
    return {"id": name, "object": "chat.completion", "choices": [choice]}


def completion(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """The answer of /v1/completions."""
    choice = {"index": 0, "text": "a", "logprobs": {"token_logprobs": numbers(row), "tokens": []}}
    return {"id": name, "object": "text_completion", "choices": [choice]}


def sglang(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """The answer of /generate."""
    values = [[value, 7, None] for value in numbers(row)]
    return {"text": "a", "meta_info": {"id": name, "output_token_logprobs": values}}


def sglang_flat(name: str, row: dict[str, Any]) -> dict[str, Any]:
    info = {"id": name, "output_token_logprobs_val": numbers(row), "weight_version": "default"}
    return {"text": "a", "meta_info": info}


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


def trainer(rows: Rows) -> pa.Table:
    """The other side, as Parquet."""
    names = pa.array([f"r{i}" for i in range(len(rows))])
    return table(rows, ["rollout_log_probs"]).append_column("response_id", names)


def audited(*arguments: object) -> tuple[int, str]:
    done = counterweight("audit", *arguments)
    return done.returncode, done.stdout + done.stderr


def respond(path: pathlib.Path, record: Record, rows: Rows) -> pathlib.Path:
    """Lines in another order than the rows."""
    lines = [json.dumps(record(f"r{i}", row)) for i, row in enumerate(rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(reversed(lines)) + "\n")
    return path


@pytest.fixture
def whole(tmp_path: pathlib.Path) -> str:
    return digest(audited(write(tmp_path / "whole", [ROWS]))[1])


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "log").mkdir()
    pq.write_table(trainer(ROWS), tmp_path / "log" / "trainer.parquet", row_group_size=5)
    return tmp_path / "log"


@pytest.mark.parametrize("record", [chat, completion, sglang, sglang_flat])
def test_the_two_sides_are_joined_by_id(
    log: pathlib.Path, tmp_path: pathlib.Path, whole: str, record: Record
) -> None:
    engine = respond(tmp_path / "engine.jsonl", record, ROWS)
    for processes in (1, 2) if record is chat else (1,):
        code, printed = audited(log, "--responses", engine, "--processes", processes)
        assert (code, digest(printed)) == (0, whole), printed
    # Also where both lie in one folder.
    respond(log / "engine.jsonl", record, ROWS)
    code, printed = audited(log, "--responses", log)
    assert (code, digest(printed)) == (0, whole), printed


def test_rows_of_the_trainer_as_lines(tmp_path: pathlib.Path, whole: str) -> None:
    """With a prompt before the sampled tokens, at which only the trainer has numbers."""
    (tmp_path / "log").mkdir()
    rows = []
    of_no_version = [{**row, "policy_versions": row["policy_versions"] * 0 - 1} for row in ROWS]
    all_count = [{**row, "response_mask": row["response_mask"] | True} for row in of_no_version]
    for i, row in enumerate(all_count):
        lists = {
            "old_log_probs": [-5.0] * 32 + [*map(float, row["old_log_probs"])],
            "response_mask": [0] * 32 + [1] * len(row["response_mask"]),
        }
        rows.append({"response_id": f"r{i}", "step": row["step"], **lists})
    place = tmp_path / "log" / "a.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = respond(tmp_path / "engine.jsonl", chat, ROWS)
    flags = ("--by", "step,position,length", "--no-doctor")
    expected = digest(audited(write(tmp_path / "all", [all_count]), *flags)[1])
    code, printed = audited(tmp_path / "log", "--responses", engine, *flags)
    assert (code, digest(printed)) == (0, expected), printed


def test_several_choices_and_lists(tmp_path: pathlib.Path) -> None:
    first, second = chat("q", ROWS[0]), chat("q", ROWS[1])
    second["choices"][0]["index"] = 1
    first["choices"] += second["choices"]
    (tmp_path / "a.json").write_text(json.dumps([first, sglang("s", ROWS[2])]))
    found = Responses(str(tmp_path))
    for name, row in (("q/0", ROWS[0]), ("q/1", ROWS[1]), ("s", ROWS[2])):
        log_probs, _ = found.at(name, row["response_mask"])
        assert np.array_equal(log_probs, row["rollout_log_probs"])
    ones = np.ones(3)
    assert found.at("q", ones) == found.at(None, ones) == "rows whose response_id no response has"


@pytest.mark.parametrize(
    "line",
    [
        "3",
        "[1]",
        "{",
        '{"id": "a", "choices": [null]}',
        '{"id": "a", "choices": [{"logprobs": {"content": [3]}}]}',
        '{"id": "a", "choices": [{"logprobs": null}]}',
        '{"choices": [{"logprobs": {"token_logprobs": [-1.0]}}]}',
        '{"meta_info": {"id": "a", "output_token_logprobs": [-1.0]}}',
        '{"meta_info": {"id": "a", "output_token_logprobs": [["x"]]}}',
    ],
)
def test_what_is_no_response_is_passed_over(tmp_path: pathlib.Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"{line}\n{json.dumps(sglang('b', ROWS[0]))}\n")
    found = Responses(str(tmp_path))
    assert found.at("a", np.ones(1)) == "rows whose response_id no response has"
    assert not isinstance(found.at("b", ROWS[0]["response_mask"]), str)


def test_versions_of_sglang(tmp_path: pathlib.Path) -> None:
    def versions(**info: Any) -> list[int]:
        record = sglang("a", {"rollout_log_probs": [-1.0, -2.0, -3.0]})
        record["meta_info"].update(info)
        (tmp_path / "a.jsonl").write_text(json.dumps(record))
        _, found = Responses(str(tmp_path)).at("a", np.ones(3))
        assert isinstance(found, np.ndarray)
        return found.tolist()

    assert versions() == versions(weight_version="default") == [-1, -1, -1]
    assert versions(weight_version="12") == [12, 12, 12]
    assert versions(weight_version="step-12") == [12, 12, 12]
    assert versions(weight_versions=[["3", 0, 1], ["4", 1, 3]]) == [3, 4, 4]


def test_rows_without_their_response_are_counted(log: pathlib.Path, tmp_path: pathlib.Path) -> None:
    engine = respond(tmp_path / "engine" / "a.jsonl", chat, ROWS)
    lines = engine.read_text().splitlines()[::-1]
    longer = json.loads(lines[3])
    longer["choices"][0]["logprobs"]["content"] *= 3
    lines[:4] = [lines[0][:-40], lines[1], lines[1], json.dumps(longer)]  # r2 has none
    engine.write_text("\n".join(lines))
    code, printed = audited(log, "--responses", engine.parent)
    assert code == 1
    for sentence in (
        "rows whose response_id no response has (2 rows)",
        "rows whose response_id several responses have (1 row)",
        "rows with as many tokens as neither the response nor its part in the mask (1 row)",
    ):
        assert sentence in printed
    assert digest(printed) == digest(audited(write(tmp_path / "rest", [ROWS[4:]]))[1])


def test_missing_values_go_to_the_doctor(log: pathlib.Path, tmp_path: pathlib.Path) -> None:
    rows = [dict(row, rollout_log_probs=row["rollout_log_probs"].copy()) for row in ROWS]
    for row in rows:
        row["rollout_log_probs"][::7] = -9999.0
    code, printed = audited(log, "--responses", respond(tmp_path / "e.jsonl", chat, rows))
    assert code == 0
    assert "sentinel" in printed
    assert "-9999" in printed


def test_one_side_alone_is_refused(log: pathlib.Path, tmp_path: pathlib.Path) -> None:
    engine = respond(tmp_path / "engine" / "a.jsonl", sglang, ROWS)
    code, printed = audited(engine.parent)
    assert code == 2
    assert "has responses of an engine, and no trainer's log-probs: nothing to compare" in printed
    code, printed = audited(log)
    assert code == 2
    assert "has no log-probs of the engine; --responses names the files" in printed
    code, printed = audited(log, "--responses", log)
    assert code == 2
    assert "has no .json or .jsonl file with vLLM's choices[].logprobs" in printed
    no_id = tmp_path / "no_id"
    no_id.mkdir()
    pq.write_table(table(ROWS, ["rollout_log_probs"]), no_id / "a.parquet")
    code, printed = audited(no_id, "--responses", engine)
    assert code == 2
    assert "has no column response_id, which names the response of a row" in printed
    named = ("--columns", "response_id=step", "--responses", engine)
    assert "rows whose response_id no response has" in audited(no_id, *named)[1]
