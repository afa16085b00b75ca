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


# Step: k3 of current over rollout, its causes in per cent, kl and its two parts; by numpy in float64.
CAUSES = {
    "00": (0.0189, (1, 101, -2), 0.0178, (0.0002, 0.0176)),
    "01": (0.0063, (29, 39, 32), 0.0076, (0.0016, 0.0060)),
    "02": (0.0135, (44, 24, 33), 0.0124, (0.0045, 0.0080)),
    "03": (0.0189, (75, 11, 14), 0.0195, (0.0129, 0.0066)),
    "04": (0.0322, (65, 11, 24), 0.0316, (0.0214, 0.0102)),
    "05": (0.0171, (61, 23, 16), 0.0148, (0.0068, 0.0080)),
    "06": (0.0218, (64, 12, 23), 0.0198, (0.0116, 0.0082)),
    "07": (0.0377, (85, 10, 6), 0.0410, (0.0322, 0.0088)),
    "08": (0.0748, (67, 15, 18), 0.0854, (0.0564, 0.0290)),
}


def rollouts(step: str) -> dict[str, Any]:
    """The arguments of a step of tests/demo/data, with versions."""
    names = ("rollout_log_probs", "old_log_probs", "current_log_probs", "response_mask")
    with np.load(REPOSITORY / f"tests/demo/data/step_{step}.npz") as data:
        batch: dict[str, Any] = {name: data[name] for name in names}
        batch["sequence_lengths"] = data["sequence_lengths"].tolist()
        batch["policy_versions"] = data["token_policy_version"]
        batch["policy_version"] = int(data["trainer_version"])
    return batch


def attribution_of(batch: dict[str, Any]) -> cw.Attribution:
    read = cw.diagnose(**batch).attribution
    assert read is not None
    return read


@pytest.mark.parametrize("step", CAUSES)
def test_rollouts_have_their_causes(step: str) -> None:
    k3, shares, kl, parts = CAUSES[step]
    read = attribution_of(rollouts(step))
    causes, tokens = read.causes, read.tokens
    assert causes.k3 / tokens == pytest.approx(k3, abs=0.5e-4)
    found = (causes.k3_engine_staleness, causes.k3_update, causes.k3_interaction)
    assert [round(100 * (part or 0) / causes.k3) for part in found] == list(shares)
    assert causes.kl / tokens == pytest.approx(kl, abs=0.5e-4)
    assert (causes.kl_engine_staleness or 0) / tokens == pytest.approx(parts[0], abs=0.5e-4)
    assert (causes.kl_update or 0) / tokens == pytest.approx(parts[1], abs=0.5e-4)
    for buckets in (read.by_magnitude, read.by_position, read.by_length, read.by_log_ratio):
        assert sum(each.tokens for each in buckets) == tokens
        assert sum(each.k3 for each in buckets) == pytest.approx(causes.k3, rel=1e-5)
        assert sum(each.log_ratio for each in buckets) == pytest.approx(-causes.kl, abs=1e-3)


def test_a_batch_of_mixed_staleness_shows_the_engines_floor() -> None:
    """Step 05: the engine has 1 % of the drift between engine and trainer, staleness 99 %."""
    read = attribution_of(rollouts("05"))
    assert read.causes.fresh_tokens == 1142
    assert read.causes.fresh_k3 / 1142 == pytest.approx(0.000152, abs=0.5e-6)
    assert read.causes.k3_engine is not None
    assert read.causes.k3_engine_staleness is not None
    assert round(100 * read.causes.k3_engine / read.causes.k3_engine_staleness) == 1
    # Weights changed within the sequences of step 06: no token is fresh.
    in_flight = attribution_of(rollouts("06")).causes
    assert in_flight.k3_engine is None


def test_an_attribution_is_a_sentence() -> None:
    assert attribution_of(rollouts("04")).sentence == (
        "k3 0.032 = 65 % engine and staleness, 11 % update, 24 % both together. 67 % of it on "
        "tokens below -1 nat (19 % of tokens); 8 of 160 sequences carry 35 %."
    )


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
    assert found["attribution"]["causes"]["k3"] > 0


def test_the_command_line_passes_healthy_files(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("click")
    path = tmp_path / "healthy.npz"
    np.savez(path, **one_of("healthy"))
    ended = counterweight("doctor", path, "--policy-version", TRAINED, "--fail-on", "warning")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[1].startswith("k3 0.")
    assert "tokens by        from   tokens       k3  observed/expected" in lines
    assert any(line.startswith("heaviest sequences: ") for line in lines)


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
