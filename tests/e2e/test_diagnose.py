"""Diagnose in this process and by a server, and ``counterweight doctor FILE``."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from command_line import counterweight, refused
from server_process import REPOSITORY, ServerProcess

GOLDEN = REPOSITORY / "tests/golden/doctor"
TRAINED = 1000

pytestmark = pytest.mark.usefixtures("local_library")


def corpus() -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """Fault, expected names and arguments of each batch; tests/golden/README.md has the format."""
    data = (GOLDEN / "batches.bin").read_bytes()
    place = 0

    def take(dtype: str, count: int) -> np.ndarray[Any, Any]:
        nonlocal place
        array = np.frombuffer(data, dtype, count, place)
        place += array.nbytes
        return array

    for line in (GOLDEN / "batches.tsv").read_text().splitlines():
        fault, expected, rows, positions, _ = line.split("\t")
        b, n = int(rows), int(positions)
        lengths, groups, advantages = take("<i4", b), take("<i4", b), take("<f4", b)
        names = ("rollout_log_probs", "old_log_probs", "current_log_probs")
        batch: dict[str, Any] = {name: take("<f4", n) for name in names}
        batch["response_mask"] = take("u1", n)
        batch["policy_versions"] = TRAINED - take("u1", n).astype(np.int32)
        batch["advantages"] = np.repeat(advantages, lengths)
        batch["sequence_lengths"], batch["group_ids"] = lengths.tolist(), groups.tolist()
        yield fault, expected.split(","), batch
    assert place == len(data)


def one_of(fault: str) -> dict[str, Any]:
    return next(batch for name, _, batch in corpus() if name == fault)


def test_server_and_process_find_the_same(client: cw.Client) -> None:
    for fault, expected, batch in corpus():
        here = cw.diagnose(**batch, policy_version=TRAINED, request_id="one")
        there = client.diagnose(**batch, policy_version=TRAINED, request_id="one")
        assert here == there
        names = {each.name for each in here.findings}
        if fault == "healthy":
            assert names <= {"advantages_zero"}
        else:
            assert names & set(expected), fault


def test_versions_make_a_copy_an_error() -> None:
    batch = one_of("healthy")
    del batch["policy_versions"]
    batch["old_log_probs"] = batch["rollout_log_probs"]

    def severity(**versions: Any) -> str:
        (found,) = (
            each
            for each in cw.diagnose(**batch, **versions).findings
            if each.name == "old_equals_rollout"
        )
        return found.severity

    assert severity() == "warning"
    assert severity(staleness=0) == "warning"
    assert severity(staleness=2) == "error"
    assert severity(version_spans=[(0, 0, 1, 4)], policy_version=5) == "error"


def test_padded_torch_tensors(client: cw.Client) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    old = torch.randn(16, 40, generator=generator).abs().neg()
    rollout = old.roll(1, dims=1)
    mask = torch.ones(16, 40, dtype=torch.bool)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        arrays = {"rollout_log_probs": rollout.to(dtype), "old_log_probs": old.to(dtype)}
        for found in (
            cw.diagnose(**arrays, response_mask=mask),
            client.diagnose(**arrays, response_mask=mask),
        ):
            (finding,) = found.findings
            assert (finding.name, finding.stream) == ("shifted", "rollout_log_probs")
            assert not found.ok


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"old_log_probs": None, "current_log_probs": None}, "tensors"),
        ({"group_ids": [1, 2, 3]}, "group_ids"),
        ({"policy_versions": None, "version_spans": [(0, 0, 10**6, 1)]}, "version_spans[0].end"),
        ({"run": "a b"}, "run"),
    ],
)
def test_errors_name_the_argument(client: cw.Client, changes: dict[str, Any], field: str) -> None:
    batch = {**one_of("healthy"), "policy_version": TRAINED, **changes}
    for diagnose in (cw.diagnose, client.diagnose):
        with pytest.raises(cw.InvalidRequestError) as failure:
            diagnose(**batch)
        assert [each.field for each in failure.value.violations] == [field]


def test_the_server_announces_it(client: cw.Client) -> None:
    assert "diagnose" in client.server_info().features


@pytest.fixture
def shifted(tmp_path: pathlib.Path) -> pathlib.Path:
    pytest.importorskip("click")
    path = tmp_path / "batch.npz"
    batch = one_of("shifted")
    del batch["policy_versions"]
    np.savez(path, **batch)
    return path


def test_the_command_line_names_a_files_faults(
    shifted: pathlib.Path, server: ServerProcess
) -> None:
    ended = counterweight("doctor", shifted)
    assert ended.returncode == 1
    assert ended.stdout.startswith(f"{shifted}: 1 finding in ")
    assert "error   shifted (confidence" in ended.stdout
    assert all(len(line) <= 80 for line in ended.stdout.splitlines()[1:])
    assert counterweight("doctor", shifted, "--fail-on", "never").returncode == 0
    by_server = counterweight("doctor", shifted, "--json", "-t", server.address)
    found = json.loads(by_server.stdout)
    assert [each["name"] for each in found["findings"]] == ["shifted"]


def test_the_command_line_passes_healthy_files(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("click")
    path = tmp_path / "healthy.npz"
    np.savez(path, **one_of("healthy"))
    ended = counterweight("doctor", path, "--policy-version", TRAINED, "--fail-on", "warning")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_is_not_examined_is_mentioned(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("click")
    batch = one_of("healthy")
    del batch["policy_versions"], batch["advantages"]
    assert [text.split()[0] for text in cw.diagnose(**batch, policy_version=3).warnings] == [
        "group_ids",
        "policy_version",
    ]
    path = tmp_path / "reference.npz"
    np.savez(path, **batch, ref_log_probs=batch["old_log_probs"])
    ended = counterweight("doctor", path)
    assert "warning: ref_log_probs is not examined" in ended.stdout
    assert "warning: group_ids" in ended.stdout


def test_a_file_without_two_log_probs_is_refused(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("click")
    path = tmp_path / "one.npz"
    ones = np.ones((2, 3), np.float32)
    np.savez(path, rollout_log_probs=-ones, response_mask=ones)
    sentence = refused(2, "doctor", path)
    assert sentence.startswith(f"{path}: tensors: two of rollout_log_probs")
