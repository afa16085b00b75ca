"""Audited rows: in this process, by a server, and over steps."""

from __future__ import annotations

import json
import math
import pathlib
import re
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from command_line import counterweight
from counterweight_rl import diagnosis
from server_process import ServerProcess

pytestmark = pytest.mark.usefixtures("local_library")


def batch(rows: int = 64, length: int = 20, seed: int = 1) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rollout = -random.exponential(size=(rows, length)).astype(np.float32)
    noise = random.normal(0, 0.05, rollout.shape) * random.lognormal(0, 0.5, (rows, 1))
    old = (rollout + noise).astype(np.float32)
    mask = np.arange(length) < random.integers(1, length + 1, (rows, 1))
    return {"rollout_log_probs": rollout, "old_log_probs": old, "response_mask": mask}


def mean_k3(arrays: dict[str, Any], rows: Any = slice(None)) -> float:
    ratio = (arrays["old_log_probs"] - arrays["rollout_log_probs"])[rows].astype(float)
    mask = arrays["response_mask"][rows]
    return float((np.expm1(ratio) - ratio)[mask].mean())


def test_all_rows_and_some(client: cw.Client) -> None:
    arrays = batch()
    audit = cw.Audit(alarm=0.1)
    here = cw.diagnose(**arrays, audit=audit, request_id="a").audit
    there = client.diagnose(**arrays, audit=audit, request_id="a").audit
    assert here is not None
    assert there is not None
    assert here.sums.numbers.tobytes() == there.sums.numbers.tobytes()
    assert (here.k3, here.low, here.high) == (there.k3, there.low, there.high)
    assert here.k3 == pytest.approx(mean_k3(arrays), rel=1e-5)
    assert here.low < here.k3 < here.high
    assert (here.rows, here.tokens) == (64, arrays["response_mask"].sum())
    assert here.advice == "less"
    assert str(here).endswith("the alarm is at 0.1; audit less")
    some = client.diagnose(**arrays, audit=cw.Audit(rows=[3, 5])).audit
    assert some is not None
    assert some.k3 == pytest.approx(mean_k3(arrays, [3, 5]), rel=1e-5)
    assert (some.low, some.high, some.more_rows) == (None, None, 30)
    assert client.diagnose(**arrays).audit is None


def test_steps_add_up_to_the_bytes_of_one(client: cw.Client) -> None:
    arrays = batch(rows=96)
    whole = client.diagnose(**arrays, audit=cw.Audit()).audit
    earlier = None
    for rows in np.array_split(np.random.default_rng(2).permutation(96), 6):
        part = {name: array[rows] for name, array in arrays.items()}
        last = client.diagnose(**part, audit=cw.Audit(earlier=earlier)).audit
        assert last is not None
        earlier = last.sums if earlier is None else earlier + last.sums
    assert whole is not None
    assert (last.rows, last.k3, last.low, last.high) == (96, whole.k3, whole.low, whole.high)
    assert last.sentence == whole.sentence


def test_before_the_update_current_log_probs_are_old_ones() -> None:
    arrays = batch()
    expected = cw.diagnose(**arrays, audit=cw.Audit()).audit
    arrays["current_log_probs"] = arrays.pop("old_log_probs")
    found = cw.diagnose(**arrays, audit=cw.Audit(before_update=True))
    assert found.audit is not None
    assert expected is not None
    assert found.audit.sums.numbers.tobytes() == expected.sums.numbers.tobytes()
    assert "engine and trainer: k3 " in str(found)


def test_a_server_shows_the_rows_of_a_run(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    arrays = batch()
    with cw.Client(server.address) as client:
        for rows in (slice(0, 40), slice(40, 64)):
            part = {name: array[rows] for name, array in arrays.items()}
            client.diagnose(**part, audit=cw.Audit(), run="a")
        for _ in range(2):  # a retry counts once
            client.diagnose(**batch(rows=5), audit=cw.Audit(), run="b", request_id="same")
    text = server.scrape()
    assert 'counterweight_doctor_audited_rows_total{run="a"} 64' in text
    assert 'counterweight_doctor_audited_rows_total{run="b"} 5' in text
    whole = cw.diagnose(**arrays, audit=cw.Audit()).audit
    assert whole is not None
    shown = dict(re.findall(r'audited_k3_nats{bound="(\w+)",run="a"} (\S+)', text))
    expected = {"mean": whole.k3, "low": whole.low, "high": whole.high}
    assert {bound: float(value) for bound, value in shown.items()} == pytest.approx(expected)
    assert 'bound="low",run="b"' not in text


def test_what_a_server_ignores_is_named() -> None:
    """An older one answers without it."""
    answer = {"tokens": "3", "examinedTokens": "3", "examinedSequences": "1", "requestId": "a"}
    found = diagnosis.reader(audit=True, shadows=True)(answer)
    assert found.audit is None
    ignored = ["audit was sent, which this server ignores"]
    assert list(found.warnings) == [*ignored, "shadows were sent, which this server ignores"]


@pytest.mark.parametrize(
    ("audit", "kind", "sentence"),
    [
        (cw.Audit(rows=[]), ValueError, "audit.rows: is empty; None means all"),
        (cw.Audit(rows=[0.5]), TypeError, "audit.rows must be"),  # type: ignore[list-item]
        (cw.Audit(before_update=1), TypeError, "audit.before_update must be"),  # type: ignore[arg-type]
        (cw.Audit(earlier=3), TypeError, "audit.earlier must be"),  # type: ignore[arg-type]
        ({"alarm": 1.0}, TypeError, "audit must be an Audit, not dict"),
        (cw.Audit(alarm=math.nan), cw.InvalidRequestError, "audit.alarm: must be finite"),
        (cw.Audit(rows=[64]), cw.InvalidRequestError, r"audit.rows\[0\]: must ascend"),
    ],
)
def test_what_is_wrong_is_named(audit: Any, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        cw.diagnose(**batch(), audit=audit)


def doctor(*arguments: str | pathlib.Path, code: int = 0) -> str:
    ended = counterweight("doctor", *arguments)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def said(*arguments: str | pathlib.Path) -> str:
    """The printed report as one line."""
    return " ".join(doctor(*arguments).split())


def test_rows_of_a_file_are_those_without_nan(tmp_path: pathlib.Path) -> None:
    arrays = batch()
    arrays["response_mask"][7] = False
    audited = [row for row in range(64) if row % 3 == 0 and row != 7]
    some = arrays["old_log_probs"].copy()
    some[[row for row in range(64) if row % 3]] = np.nan
    path = tmp_path / "some.npz"
    np.savez(path, **{**arrays, "old_log_probs": some})
    expected = cw.diagnose(**arrays, audit=cw.Audit(rows=audited, alarm=0.01)).audit
    assert expected is not None
    assert expected.sentence in said(path, "--audit", "rows", "--alarm", "0.01")
    found = json.loads(doctor(path, "--audit", "rows", "--alarm", "0.01", "--json"))["audit"]
    assert found["sums"] == expected.sums.numbers.tolist()
    assert (found["rows"], found["advice"]) == (expected.rows, expected.advice)
    # Packed, and every row.
    lengths = np.full(64, 20)
    flat = {name: array.reshape(-1) for name, array in arrays.items()}
    np.savez(tmp_path / "all.npz", sequence_lengths=lengths, **flat)
    whole = cw.diagnose(**arrays, audit=cw.Audit()).audit
    assert whole is not None
    assert whole.sentence in said(tmp_path / "all.npz", "--audit", "rows", "--fail-on", "never")


def test_a_file_of_before_the_update(tmp_path: pathlib.Path) -> None:
    arrays = batch()
    expected = cw.diagnose(**arrays, audit=cw.Audit()).audit
    arrays["current_log_probs"] = arrays.pop("old_log_probs")
    path = tmp_path / "first.npz"
    np.savez(path, **arrays)
    assert expected is not None
    never = ("--fail-on", "never")
    assert expected.sentence in said(path, "--audit", "before-update", *never)
    assert "old_log_probs: is missing; --audit rows" in doctor(path, "--audit", "rows", code=2)


def test_files_that_cannot_be_audited_say_why(tmp_path: pathlib.Path) -> None:
    arrays = batch(rows=4)
    arrays["response_mask"][:] = True
    arrays["old_log_probs"][2, 5] = np.nan
    path = tmp_path / "part.npz"
    np.savez(path, **arrays)
    partly = doctor(path, "--audit", "rows", code=2)
    assert "old_log_probs: is NaN at 1 of the 20 tokens of row 2; a row is audited as" in partly
    arrays["old_log_probs"][:] = np.nan
    np.savez(path, **arrays)
    assert "no row has a number to audit" in doctor(path, "--audit", "rows", code=2)
    assert "--alarm: needs --audit" in doctor(path, "--alarm", "1", code=2)
    assert "--audit: needs a FILE" in doctor("--audit", "rows", code=2)
    assert "audit.before_update" in doctor(path, "--audit", "before-update", code=2)
