"""Clients that record: what the files hold, and what becomes of what cannot be written."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer
from sample import BATCH, MASK, OLD, ROLLOUT, answer, correct

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl.recording import recorder

pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

TRIMMED = [[-1, -2], [-4]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "CLOSE_SECONDS", 60.0)


@pytest.fixture
def answering(server: FakeServer) -> FakeServer:
    server.handler = answer
    return server


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.parquet"))


def rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    return [row for path in files(folder) for row in pq.read_table(path).to_pylist()]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_row_is_a_sequence_without_padding(answering: FakeServer, tmp_path: pathlib.Path) -> None:
    with cw.Client(answering.target, record=tmp_path / "new" / "log") as client:
        correct(
            client,
            run="a",
            replica="r0",
            step=3,
            policy_version=9,
            policy_versions=np.array([[7, 8, 0], [-1, 0, 0]]),
            request_id="id",
        )
    assert (client.recorded, client.record_dropped) == (2, 0)
    found = rows(tmp_path / "new" / "log")
    assert [row["rollout_log_probs"] for row in found] == TRIMMED
    assert [row["old_log_probs"] for row in found] == [[-0.5, -1.5], [-3.5]]
    assert [row["response_mask"] for row in found] == [[True, True], [True]]
    assert [row["policy_versions"] for row in found] == [[7, 8], [-1]]
    assert [row["tokens"] for row in found] == [2, 1]
    assert [row["oldest_version"] for row in found] == [7, -1]
    assert [row["newest_version"] for row in found] == [8, -1]
    assert [row["row_id"] for row in found] == ["id/0", "id/1"]
    labels = {"run": "a", "replica": "r0", "step": 3, "policy_version": 9, "method": "token_tis"}
    assert all({name: row[name] for name in labels} == labels for row in found)
    assert {row["numerics_version"] for row in found} == {7}
    assert len({row["method_hash"] for row in found}) == 1
    assert abs(found[0]["recorded_at"].timestamp() - time.time()) < 3600


def test_masked_positions_between_tokens_stay(
    answering: FakeServer, tmp_path: pathlib.Path
) -> None:
    mask = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], np.uint8)
    batch = {name: np.arange(10, dtype=np.float32).reshape(2, 5) for name in list(BATCH)[:2]}
    answering.handler = lambda request, context: service_answer(mask)
    with cw.Client(answering.target, record=tmp_path) as client:
        client.correct(**batch, response_mask=mask, method="token_tis", outputs=["keep_mask"])
    assert [row["response_mask"] for row in rows(tmp_path)] == [[False, True, False, True], []]
    assert [row["rollout_log_probs"] for row in rows(tmp_path)] == [[0, 1, 2, 3], []]


def service_answer(mask: Any) -> Any:
    from sample import Response

    made = Response(request_id="id", numerics_version=7, backend="cpu")
    made.tensors.add(role="TENSOR_ROLE_KEEP_MASK", dtype="D_TYPE_U8", data=mask.tobytes())
    return made


def test_packed_halves_and_spans(answering: FakeServer, tmp_path: pathlib.Path) -> None:
    flat = {name: BATCH[name].reshape(-1).astype(np.float16) for name in list(BATCH)[:2]}
    with cw.Client(answering.target, record=tmp_path) as client:
        client.correct(
            **flat,
            response_mask=MASK.reshape(-1),
            sequence_lengths=[3, 3],
            method=cw.Preset("token_tis", upper=3.0),
            version_spans=[(0, 0, 2, 5)],
            policy_version=6,
        )
    assert [row["rollout_log_probs"] for row in rows(tmp_path)] == TRIMMED
    assert [row["policy_versions"] for row in rows(tmp_path)] == [[5, 5], [-1]]


def test_floats_are_split_by_byte_and_the_schema_has_a_version(
    answering: FakeServer, tmp_path: pathlib.Path
) -> None:
    with cw.Client(answering.target, record=tmp_path) as client:
        correct(client)
    (path,) = files(tmp_path)
    file = pq.ParquetFile(path)
    assert file.schema_arrow.metadata[b"counterweight.schema_version"] == b"1"
    group = file.metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    floats = columns["rollout_log_probs.list.element"]
    assert "BYTE_STREAM_SPLIT" in floats.encodings
    # Half the levels to read: 13 instead of 19 ns a token.
    assert not file.schema_arrow.field("rollout_log_probs").type.value_field.nullable
    assert floats.compression == "ZSTD"


def test_all_ways_to_call_are_recorded(answering: FakeServer, tmp_path: pathlib.Path) -> None:
    with cw.Client(answering.target, record=tmp_path) as client:
        correct(client)
        rollout = ROLLOUT.copy()
        future = client.submit(**{**BATCH, "rollout_log_probs": rollout})
        rollout[:] = 0
        future.result()
        client.prepare(method="token_tis").correct(
            rollout_log_probs=ROLLOUT, old_log_probs=OLD, response_mask=MASK
        )

    async def run() -> int:
        async with counterweight_rl.aio.Client(answering.target, record=tmp_path) as other:
            await other.correct(**BATCH)
        return other.recorded

    assert client.recorded == 6
    assert asyncio.run(run()) == 2
    assert [row["rollout_log_probs"] for row in rows(tmp_path)] == TRIMMED * 4


def test_calls_that_repeat_rows_or_fail_are_not_recorded(
    answering: FakeServer, tmp_path: pathlib.Path
) -> None:
    counts = cw.GlobalCounts(num_tokens=3)
    with cw.Client(answering.target, record=tmp_path) as client:
        correct(client, metrics=False)
        correct(client, partial_sums=True, global_counts=counts)
        with pytest.raises(ValueError, match="old_log_probs"):
            correct(client, old_log_probs=OLD[:1])
    assert (client.recorded, client.record_dropped, files(tmp_path)) == (0, 0, [])


def test_without_rollout_log_probs_there_is_nothing_to_compare(
    answering: FakeServer, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cw.Client(answering.target, record=tmp_path) as client:
        correct(client, rollout_log_probs=None, current_log_probs=OLD)
    assert (client.recorded, client.record_dropped) == (0, 2)
    assert "lack rollout_log_probs" in caplog.text


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The writer waits for it before it takes rows."""
    event = threading.Event()
    add = recorder._Writer.add

    def wait(writer: Any, taken: Any) -> None:
        assert event.wait(60)
        add(writer, taken)

    monkeypatch.setattr(recorder._Writer, "add", wait)
    yield event
    event.set()


def test_a_full_queue_drops_and_counts_and_never_blocks(
    answering: FakeServer, tmp_path: pathlib.Path, held: threading.Event
) -> None:
    # One batch has 54 bytes: the second one does not fit beside the first.
    with cw.Client(answering.target, record=cw.Record(tmp_path, queue_bytes=80)) as client:
        for i in range(5):
            correct(client, request_id=str(i))
        assert client.record_dropped == 8
        held.set()
    assert (client.recorded, client.record_dropped) == (2, 8)
    assert [row["row_id"] for row in rows(tmp_path)] == ["0/0", "0/1"]


def test_close_waits_for_a_bound_and_counts_the_rest(
    answering: FakeServer,
    tmp_path: pathlib.Path,
    held: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "CLOSE_SECONDS", 0.05)
    with cw.Client(answering.target, record=tmp_path) as client:
        correct(client)
        correct(client)
    assert (client.recorded, client.record_dropped) == (0, 4)
    correct_after = client.record_dropped
    client.close()
    assert client.record_dropped == correct_after
    # The thread ends what it had begun with, and the counts follow.
    held.set()
    wait_until(lambda: client.recorded == 2)
    assert client.record_dropped == 2


def test_files_are_closed_by_size(
    answering: FakeServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "GROUP_POSITIONS", 1)
    with cw.Client(answering.target, record=cw.Record(tmp_path, file_bytes=1)) as client:
        for i in range(3):
            correct(client, request_id=str(i))
    assert [len(pq.read_table(path)) for path in files(tmp_path)] == [2, 2, 2]
    assert [row["row_id"][0] for row in rows(tmp_path)] == list("001122")


def test_files_are_closed_by_age(answering: FakeServer, tmp_path: pathlib.Path) -> None:
    with cw.Client(answering.target, record=cw.Record(tmp_path, file_seconds=0.01)) as client:
        correct(client)
        wait_until(lambda: client.recorded == 2)
        correct(client)
        wait_until(lambda: client.recorded == 4)
        assert len(files(tmp_path)) == 2


def test_calls_of_two_kinds_have_files_of_their_own(
    answering: FakeServer, tmp_path: pathlib.Path
) -> None:
    with cw.Client(answering.target, record=tmp_path) as client:
        for _ in range(2):
            correct(client)
            correct(client, old_log_probs=None, current_log_probs=OLD)
    assert [len(pq.read_table(path)) for path in files(tmp_path)] == [4, 4]
    columns = [{*pq.read_schema(path).names} for path in files(tmp_path)]
    assert columns[0] ^ columns[1] == {"old_log_probs", "current_log_probs"}


def test_the_budget_deletes_the_oldest_files(
    answering: FakeServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "GROUP_POSITIONS", 1)
    (tmp_path / "mine.parquet").write_text("x" * 100_000)
    with cw.Client(answering.target, record=cw.Record(tmp_path, file_bytes=1)) as client:
        correct(client)
    (first,) = tmp_path.glob("counterweight-*.parquet")
    budget = 5 * first.stat().st_size
    with cw.Client(answering.target, record=cw.Record(tmp_path, 1, budget_bytes=budget)) as client:
        for _ in range(20):
            correct(client)
    kept = sorted(tmp_path.glob("counterweight-*.parquet"))
    assert client.recorded == 40
    assert 2 <= len(kept) <= 5
    assert sum(path.stat().st_size for path in kept) <= budget
    assert first not in kept
    assert (tmp_path / "mine.parquet").exists()


def test_a_folder_that_vanishes_costs_rows_and_no_call(
    answering: FakeServer, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log"
    with cw.Client(answering.target, record=folder) as client:
        folder.rmdir()
        correct(client)
    assert (client.recorded, client.record_dropped) == (0, 2)
    assert "No such file" in caplog.text


CRASH = """
import os, signal, sys
import numpy as np
import counterweight_rl as cw
from counterweight_rl.recording import recorder

recorder.GROUP_POSITIONS = 1
client = cw.Client(sys.argv[1], record=cw.Record(sys.argv[2], file_bytes=int(sys.argv[3])))
ones = np.array([[-1, -2, -3], [-4, -5, -6]], np.float32)
mask = np.ones((2, 3), bool)
for i in range(3):
    client.correct(
        rollout_log_probs=ones, old_log_probs=ones, response_mask=mask, method="token_tis"
    )
    while client.recorded < 2 * (i + 1) and sys.argv[3] == "1":
        pass
print("done", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def crash(target: str, folder: pathlib.Path, file_bytes: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, target, str(folder), str(file_bytes)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "no_proxy": "*"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "done\n"), done.stderr


def test_a_killed_process_loses_its_open_file_only(
    answering: FakeServer, tmp_path: pathlib.Path
) -> None:
    crash(answering.target, tmp_path, 1)
    crash(answering.target, tmp_path, 1 << 20)
    assert len(rows(tmp_path)) == 6
    left = list(tmp_path.glob("*.open"))
    # The next process deletes the other one's beginning, and not that of a process that lives.
    with cw.Client(answering.target, record=tmp_path) as client:
        correct(client)
        wait_until(lambda: not any(path.exists() for path in left))
    assert len(rows(tmp_path)) == 8


def test_a_forked_child_has_files_of_its_own(answering: FakeServer, tmp_path: pathlib.Path) -> None:
    made = recorder.open_recorder(tmp_path)
    assert made is not None
    result = cw.Client(answering.target).correct(**BATCH)
    made.put(made.copy(BATCH), result)
    child = os.fork()
    if child == 0:
        made.put(made.copy(BATCH), result)
        made.put(made.copy(BATCH), result)
        made.close_sync()
        os._exit(made.recorded)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    made.close_sync()
    assert made.recorded == 2
    assert len(rows(tmp_path)) == 6


def test_settings_are_checked(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(record: Any, match: str, kind: type[Exception] = ValueError) -> None:
        with pytest.raises(kind, match=match):
            cw.Client("localhost:1", record=record)

    refused(3, "record must be a folder or a Record, not int", TypeError)
    refused(cw.Record(tmp_path, file_bytes=0), r"record\.file_bytes")
    refused(cw.Record(tmp_path, file_seconds=0), r"record\.file_seconds must be above 0")
    refused(cw.Record(tmp_path, file_bytes=10, budget_bytes=19), "at least twice file_bytes, 20")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "cannot make")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refused(tmp_path, r"needs pyarrow: pip install \"counterweight-rl\[record\]\"", ImportError)
    monkeypatch.undo()
    with cw.Client("localhost:1") as client:
        assert (client.recorded, client.record_dropped) == (0, 0)
