"""The demo, as `make demo` runs it, compared with the numbers of the data's README."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_process import POLL_SECONDS
from server_process import DEADLINE_SECONDS, REPOSITORY, binary

# Absent from the environments with the oldest dependencies and with torch.
pytest.importorskip("matplotlib")

DEMO = REPOSITORY / "tests/demo/demo.py"
STEPS = [f"step_{i:02}" for i in range(9)]
# From tests/demo/data/README.md, three digits each.
K1 = [0.000235, 0.00163, 0.00446, 0.01285, 0.02141, 0.00683, 0.01163, 0.03223, 0.05637]
K3 = [0.000197, 0.00180, 0.00590, 0.01416, 0.02095, 0.01037, 0.01404, 0.03190, 0.05013]
TOKENS = [7264, 7131, 7528, 7441, 6480, 6961, 6987, 7251, 6468]
# Effective sample size of weights min(exp(l), 2), %.
SAMPLE_SIZE = [99.960, 99.638, 98.997, 97.785, 97.276, 98.445, 97.770, 96.860, 94.946]
PNG = b"\x89PNG\r\n\x1a\n"


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DEMO), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("demo") / "new" / "drift.png"


@pytest.fixture(scope="module")
def printed(picture: pathlib.Path) -> str:
    done = run_demo("--server", str(binary()), "--output", str(picture))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def rows(printed: str, title: str) -> list[list[str]]:
    """Returns the cells of the table with that title; two blanks separate columns."""
    lines = printed.split(title, 1)[1].splitlines()
    table = [re.split(r"\s{2,}", line.strip()) for line in lines if line.startswith("  step_")]
    return table[: len(STEPS)]


def test_drift_is_that_of_the_data(printed: str) -> None:
    table = rows(printed, "Drift of")
    assert [row[0] for row in table] == STEPS
    assert [int(row[3]) for row in table] == TOKENS
    # Tolerance: half a unit of the last printed digit.
    assert [float(row[4]) for row in table] == pytest.approx(K1, rel=1e-3, abs=6e-6)
    assert [float(row[5]) for row in table] == pytest.approx(K3, rel=1e-3, abs=6e-6)
    sizes = [float(row[7].removesuffix(" %")) for row in table]
    assert sizes == pytest.approx(SAMPLE_SIZE, abs=0.006)


def test_tables_fit_into_80_columns(printed: str) -> None:
    tables = [line for line in printed.splitlines() if line.startswith("  step")]
    assert len(tables) == 2 * (1 + len(STEPS))
    assert max(map(len, tables)) <= 80


def test_staleness_is_the_mean_over_tokens(printed: str) -> None:
    staleness = [float(row[2]) for row in rows(printed, "Drift of")]
    assert staleness[:5] == [0, 1, 2, 3, 4]
    # The counts by staleness of the data's statistics: steps 05 and 06 hold several versions.
    assert staleness[5] == pytest.approx((1650 + 2 * 1320 + 3 * 1172 + 4 * 1677) / 6961, abs=0.006)
    assert staleness[6] == pytest.approx((545 + 2 * 1364 + 3 * 2282 + 4 * 2020) / 6987, abs=0.006)
    assert staleness[7:] == [4, 4]


def test_methods_drop_nothing_without_staleness_and_most_with_four_bits(printed: str) -> None:
    table = rows(printed, "Tokens whose")
    shares = [[float(cell.removesuffix(" %")) for cell in row[3:]] for row in table]
    assert shares[0] == [0, 0, 0, 0, 0]
    assert all(largest > 30 for largest in shares[8][1:])


def test_five_lines_of_prometheus_are_those_of_the_last_step(printed: str) -> None:
    lines = re.findall(
        r'^  (counterweight_drift_\w+){.*run="demo-geo_rs-0.95-1.05"} (\S+)$', printed, re.M
    )
    assert len(lines) == 5
    values = dict(lines)
    assert float(values["counterweight_drift_kl_nats"]) == pytest.approx(K1[8], abs=6e-6)
    assert float(values["counterweight_drift_k3_nats"]) == pytest.approx(K3[8], abs=6e-6)
    kept = float(values["counterweight_drift_kept_token_ratio"])
    dropped = float(rows(printed, "Tokens whose")[8][4].removesuffix(" %"))
    assert 100 * (1 - kept) == pytest.approx(dropped, abs=0.06)


def test_a_fault_and_a_missing_correction_are_named_and_a_healthy_run_is_not(printed: str) -> None:
    shown = printed.split("Three runs over these steps", 1)[1].split("demo: drawing", 1)[0]
    table = {
        name: re.split(r"\s{2,}", rest.strip())
        for name, rest in re.findall(r"^  (demo-(?:healthy|late|uncorrected))  (.*)$", shown, re.M)
    }
    assert table == {
        "demo-healthy": ["used 9 of 9", "nothing"],
        "demo-late": ["used 9 of 9", "shifted 9 of 9"],
        "demo-uncorrected": ["unused 9 of 9", "nothing"],
    }
    words = " ".join(shown.split())
    assert "demo-late, step_08: rollout_log_probs lies one token early: 0.6316 nats" in words
    assert "demo-uncorrected, step_08: the loss did not use the weights" in words
    assert max(map(len, shown.splitlines())) <= 80


def test_it_ends_with_an_audit_of_its_record(printed: str) -> None:
    audited = printed.split("record: 1 file, 1 row group, 1,440 sequences, 63,511 tokens", 1)[1]
    by_step = audited.split("Drift by step", 1)[1].split("What methods", 1)[0]
    found = re.findall(r"^\d+ +│ +(\d+) │ +160 │ +(\S+) │ +(\S+) │", by_step, re.M)
    assert [int(tokens) for tokens, _, _ in found] == TOKENS
    # Tolerance: half a unit of the third digit.
    assert [float(k1) for _, k1, _ in found] == pytest.approx(K1, rel=6e-3)
    assert [float(k3) for _, _, k3 in found] == pytest.approx(K3, rel=6e-3)
    assert re.search(r"^digest [0-9a-f]{16}$", audited, re.M)


def test_picture_is_where_it_says(printed: str, picture: pathlib.Path) -> None:
    assert picture.read_bytes().startswith(PNG)
    assert f"the picture is {picture}" in printed
    assert "next: `make serve`" in printed
    assert re.search(r"browser were at http://127.0.0.1:\d+/; `make demo KEEP=1`", printed)


def test_it_can_leave_curves_for_a_browser(
    tmp_path: pathlib.Path, tool: Callable[[str], str]
) -> None:
    tool("prometheus")
    command = [sys.executable, str(DEMO), "--server", str(binary()), "--keep"]
    demo = subprocess.Popen(
        [*command, "--output", str(tmp_path / "drift.png")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stdout is not None
        found: dict[str, str] = {}
        for line in demo.stdout:
            if address := re.search(r"(the page is|Prometheus shows \w+ at) (http://\S+)", line):
                found[address[1].split()[-1]] = address[2]
            if "until Ctrl-C" in line:
                break
        assert len(found) == 2, "no Prometheus"
        page = urllib.request.urlopen(found["is"], timeout=DEADLINE_SECONDS).read()
        assert b"<title>Counterweight</title>" in page
        # The nine steps of the tables, and then one a second.
        wait_for(
            lambda: (
                len(ask(found["is"] + "page.json?run=demo-geo_rs-0.95-1.05")["run"]["times"])
                > len(STEPS)
            )
        )
        graph = urllib.request.urlopen(found["at"], timeout=DEADLINE_SECONDS).read().decode()
        assert "<title>Prometheus" in graph
        server = "http://" + urllib.parse.urlsplit(found["at"]).netloc
        files = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css)[^"]*)"', graph)
        assert len(files) > 5
        for file in files:
            urllib.request.urlopen(server + file, timeout=DEADLINE_SECONDS)
        query = urllib.parse.quote('counterweight_drift_k3_nats{run="demo-geo_rs-0.95-1.05"}')
        wait_for(lambda: ask(f"{server}/api/v1/query?query={query}")["data"]["result"])
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, errors) == (0, "")
    for url in (found["is"], server):
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, timeout=DEADLINE_SECONDS)


def ask(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # Prometheus is not ready yet.
        assert error.code == 503
        return {"data": {"result": []}}


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(POLL_SECONDS)


def test_without_a_server_it_says_how_to_build_one(tmp_path: pathlib.Path) -> None:
    done = run_demo("--server", str(tmp_path / "missing"))
    assert done.returncode == 1
    assert "run `make build`" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_no_server_is_a_sentence(tmp_path: pathlib.Path) -> None:
    impostor = tmp_path / "impostor"
    impostor.write_text("#!/bin/sh\nexit 3\n")
    impostor.chmod(0o755)
    done = run_demo("--server", str(impostor))
    assert done.returncode == 1
    assert "run `make build`" in done.stderr
    assert "Traceback" not in done.stderr
