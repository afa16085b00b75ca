"""The report of runs, from a real Prometheus that scrapes a real server."""

from __future__ import annotations

import html.parser
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import counterweight_rl as cw
import pytest
from batches import padded_batch
from prometheus_process import Prometheus
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess
from transports import LOSS

pytest.importorskip("matplotlib")
from counterweight_rl.report.__main__ import main

pytestmark = pytest.mark.server_only

PNG = b"\x89PNG\r\n\x1a\n"


def report(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    """Runs it as its user does."""
    return subprocess.run(
        [sys.executable, "-m", "counterweight_rl.report", "--prometheus", url, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "client/python"), "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs it in this process, and returns the exit code and the sentence."""

    def run(*arguments: str, url: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["report", "--prometheus", url, *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        if isinstance(exit_info.value.code, str):
            # Python prints it, and exits with 1.
            return 1, exit_info.value.code
        return int(exit_info.value.code or 0), capsys.readouterr().err

    return run


@pytest.fixture(scope="module")
def answers() -> dict[str, list[cw.Result]]:
    return {"calm": [], "wild": []}


@pytest.fixture(scope="module")
def prometheus(
    start_server: Callable[..., ServerProcess],
    tool: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    answers: dict[str, list[cw.Result]],
) -> Iterator[Prometheus]:
    server = start_server()
    target = urllib.parse.urlsplit(server.metrics_url).netloc
    running = Prometheus(tool("prometheus"), tmp_path_factory.mktemp("report"), [target])
    try:
        with cw.Client(server.address) as client:
            for seed in range(3):
                for run, spread in (("calm", 0.01), ("wild", 0.5)):
                    batch = padded_batch(20, 50, spread=spread, seed=seed)
                    answers[run].append(client.correct(method=LOSS, run=run, **batch))
                # Each batch is to be a point of the curves.
                running.wait_for(f'counterweight_drift_batches_total{{run="wild"}} == {seed + 1}')
        yield running
    finally:
        running.stop()


class Tables(html.parser.HTMLParser):
    """The rows of a page's tables, by the heading above them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self._heading, self._tag = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._tag = tag
        if tag == "tr":
            self.rows.setdefault(self._heading, []).append([])

    def handle_data(self, data: str) -> None:
        if self._tag == "h2":
            self._heading = data
        elif self._tag in ("td", "th"):
            self.rows[self._heading][-1].append(data)
        self._tag = ""


def test_it_shows_what_the_server_answered(
    prometheus: Prometheus, answers: dict[str, list[cw.Result]], tmp_path: pathlib.Path
) -> None:
    output = tmp_path / "new" / "drift.of.runs"
    done = report("--since=5m", f"--output={output}", url=prometheus.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"report: wrote {output}.png\nreport: wrote {output}.html\n"
    assert (tmp_path / "new" / "drift.of.runs.png").read_bytes().startswith(PNG)
    text = (tmp_path / "new" / "drift.of.runs.html").read_text()
    # One file.
    assert not re.search(r"https?://", text)
    rows = Tables(text).rows
    tokens = {run: sum(int(a.metrics["tokens"]) for a in answers[run]) for run in answers}
    assert rows["Counted"][1:] == [
        ["calm", "3", f"{tokens['calm']:,}", "60", "0"],
        ["wild", "3", f"{tokens['wild']:,}", "60", "0"],
    ]
    for row in rows["KL divergence, k3 (nats per token)"][1:]:
        told = [answer.metrics["k3"] for answer in answers[row[0]]]
        weights = [answer.metrics["tokens"] for answer in answers[row[0]]]
        mean = sum(k3 * n for k3, n in zip(told, weights, strict=True)) / sum(weights)
        expected = [min(told), mean, max(told)]
        assert [float(cell) for cell in row[1:]] == pytest.approx(expected, rel=1e-3)
    (dropped,) = [row for row in rows["Dropped by rule"] if row[0] == "wild"]
    share = sum(a.rules[0].dropped_tokens for a in answers["wild"]) / tokens["wild"]
    assert share > 0
    assert dropped[1] == answers["wild"][0].rules[0].name
    assert dropped[2] == f"{100 * share:.2f} %"
    assert "Policy loss" in rows


def test_one_run_of_several(prometheus: Prometheus, tmp_path: pathlib.Path) -> None:
    done = report("--since=5m", "--run=calm", f"--output={tmp_path}/one", url=prometheus.url)
    assert done.returncode == 0, done.stderr
    assert "wild" not in (tmp_path / "one.html").read_text()
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)


Refused = Callable[..., tuple[int, str]]


def test_a_run_that_is_not_there_names_those_that_are(
    prometheus: Prometheus, tmp_path: pathlib.Path, refused: Refused
) -> None:
    answer = refused("--since=5m", "--run=clam", f"--output={tmp_path}/none", url=prometheus.url)
    assert answer == (1, "report: Prometheus knows no run 'clam' in this time, but 'calm', 'wild'")
    assert not list(tmp_path.iterdir())


def test_a_time_without_runs(
    prometheus: Prometheus, tmp_path: pathlib.Path, refused: Refused
) -> None:
    until = time.time() - 86400
    code, words = refused(f"--until={until}", f"--output={tmp_path}/none", url=prometheus.url)
    assert code == 1
    assert "knows no run in this time" in words
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--since=6", "no time span such as"),
        ("--since=0h", "no time span"),
        ("--header=x", "NAME: VALUE"),
    ],
)
def test_wrong_arguments(argument: str, words: str, refused: Refused) -> None:
    code, error = refused(argument, url="http://localhost:1")
    assert code == 2
    assert words in error


def test_no_prometheus_is_a_sentence(tmp_path: pathlib.Path, refused: Refused) -> None:
    code, words = refused(f"--output={tmp_path}/none", url="http://127.0.0.1:1")
    assert code == 1
    assert words.startswith("report: found no Prometheus at http://127.0.0.1:1: ")


def test_headers_reach_prometheus(tmp_path: pathlib.Path, refused: Refused) -> None:
    seen: list[str | None] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_error(401)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        answer = refused("--header=Authorization: Bearer me", f"--output={tmp_path}/x", url=url)
    assert answer == (1, f"report: Prometheus at {url} answers 401")
    assert seen == ["Bearer me"]
