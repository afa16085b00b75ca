"""``counterweight serve``, ``doctor``, ``methods`` and ``demo``."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from command_line import COMMAND, counterweight, done, environment, refused
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess, binary, wait_until

pytest.importorskip("click")
from counterweight_rl.cli import demo

SERVE = ("serve", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", "--drain_delay=0")
DATA = REPOSITORY / "tests/demo/data"
SERVING = "serving gRPC on "


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@contextmanager
def serving(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The process, the server's address, and the lines so far."""
    process = subprocess.Popen(
        [*COMMAND, *SERVE, *flags],
        env=environment({"COUNTERWEIGHT_SERVER": str(binary())}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if "page of the runs" in line:
                break
        yield process, lines[0].removeprefix(SERVING), lines
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve(number: signal.Signals) -> None:
    with serving("--threads=1") as (process, address, lines):
        assert lines[1] == f'  Python: counterweight_rl.Client("{address}")'
        assert lines[2].startswith("  metrics: http://127.0.0.1:")
        with cw.Client(address) as client:
            assert client.server_info().threads == 1
            client.correct(method="token_tis", **padded_batch())
        process.send_signal(number)
        _, log = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0
        events = [line.split()[1] for line in log.splitlines()]
        assert events[0] == "started"
        assert events[-2:] == ["draining", "stopped"]
        assert "{" not in log.splitlines()[-1]


def test_serve_forwards_other_signals(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("max_tokens: 1000\n")
    with serving(f"--config={config}") as (process, address, _), cw.Client(address) as client:
        assert client.server_info().limits.max_tokens == 1000
        config.write_text("max_tokens: 2000\n")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.server_info().limits.max_tokens == 2000)


def test_a_killed_command_leaves_no_server() -> None:
    with serving() as (process, address, _):
        host, _, port = address.rpartition(":")

        def is_closed() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) != 0

        assert not is_closed()
        process.kill()
        wait_until(is_closed)


def test_serve_passes_the_servers_refusals_and_help_on() -> None:
    changes = {"COUNTERWEIGHT_SERVER": str(binary())}
    wrong = counterweight("serve", "--treads=2", changes=changes)
    assert wrong.returncode == 2
    assert "unknown flag --treads" in wrong.stderr
    assert "--metrics_listen" in done("serve", "--help", changes=changes)
    expected = subprocess.run([binary(), "--version"], stdout=subprocess.PIPE, text=True).stdout
    assert done("serve", "--version", changes=changes) == expected


def test_serve_without_a_server(tmp_path: pathlib.Path) -> None:
    for named in (tmp_path, tmp_path / "missing"):
        sentence = refused(1, "serve", changes={"COUNTERWEIGHT_SERVER": str(named)})
        assert sentence == f"COUNTERWEIGHT_SERVER names {named}, which is no program"


def test_the_server_on_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / "counterweight-server").symlink_to(binary())
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    changes = {"COUNTERWEIGHT_SERVER": "", "PATH": path}
    assert done("serve", "--version", changes=changes).startswith("counterweight-server ")


def test_doctor(server: ServerProcess) -> None:
    changes = {"COUNTERWEIGHT_SERVER": str(binary())}
    findings = json.loads(done("doctor", "--json", "-t", server.address, changes=changes))
    by_name = {each["name"]: each for each in findings}
    with cw.Client("local:") as client:
        info = client.server_info()
    library = by_name["library (local:)"]
    assert library["state"] == "ok"
    assert f"{info.version}, numerics version {info.numerics_version}" in library["text"]
    assert f"kernels for {info.instruction_set}" in library["text"]
    assert "libcounterweight.so" in library["text"]
    assert by_name["numpy"]["text"] == np.__version__
    assert str(binary()) in by_name["server (serve)"]["text"]
    assert by_name[server.address]["state"] == "ok"
    try:
        cw.Client("local:cuda").close()
    except cw.CounterweightError as why:
        hint = "; the wheel counterweight-rl-cu13 brings a library that has it"
        has_backend = "no CUDA backend" not in str(why)
        assert by_name["CUDA (local:cuda)"] == {
            "name": "CUDA (local:cuda)",
            "state": "missing",
            "text": str(why) if has_backend else f"{why}{hint}",
        }
    assert "GPU driver" in by_name
    assert "library (local:)" in done("doctor", changes=changes)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("COUNTERWEIGHT_LIBRARY", "library (local:)"),
        ("COUNTERWEIGHT_SERVER", "server (serve)"),
        ("COUNTERWEIGHT_TARGET", "127.0.0.1:9"),
    ],
)
def test_doctor_finds_what_is_broken(variable: str, name: str) -> None:
    value = "127.0.0.1:9" if variable.endswith("TARGET") else "/no/such"
    changes = {"COUNTERWEIGHT_SERVER": str(binary()), variable: value}
    ended = counterweight("doctor", "--json", "--timeout", "0.5", changes=changes)
    assert ended.returncode == 1
    broken = [each for each in json.loads(ended.stdout) if each["state"] == "broken"]
    assert [each["name"] for each in broken] == [name]
    assert value in broken[0]["text"] or value == broken[0]["name"]


def test_a_server_that_does_not_run(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "counterweight-server"
    program.write_text("#!/bin/sh\necho 'cannot load libc' >&2\nexit 127\n")
    program.chmod(0o755)
    ended = counterweight("doctor", "--json", changes={"COUNTERWEIGHT_SERVER": str(program)})
    assert ended.returncode == 1
    assert f"{program} does not run: cannot load libc" in ended.stdout


def test_methods() -> None:
    with cw.Client("local:") as client:
        methods = client.list_methods()
    listed = json.loads(done("methods", "--json"))
    assert listed == json.loads(json.dumps([dataclasses.asdict(each) for each in methods]))
    table = done("methods")
    assert all(each.name in table for each in methods)
    # The groups and their order are those of kernels/METHODS.md.
    page = (REPOSITORY / "kernels/METHODS.md").read_text()
    listed_names = re.findall(r"^(?:## (.*)|### (\w+))$", page.partition("## Surrogates")[0], re.M)
    printed = re.findall(r"^(?:(\w[\w ]+): .*|(\w+) +│ .*)$", table, re.M)
    assert [group or name for group, name in printed] == [g or n for g, n in listed_names]
    # Each has its sentence, in lines of the second column.
    sentences = " ".join(re.findall(r"│ (.*)$", table, re.M))
    assert all(each.when_to_use in sentences for each in methods)
    for each in methods[:3]:
        text = done("methods", each.name)
        assert each.when_to_use in text
        assert all(p.name in text and p.description in text for p in each.parameters)
        assert all(block in text for block in each.equivalents.values())


def test_demo(tmp_path: pathlib.Path) -> None:
    text = done("demo", "--save", tmp_path)
    assert len(demo.STEPS) == len(list(tmp_path.glob("*.npz")))
    with cw.Client("local:") as client:
        for step in demo.STEPS:
            with (
                np.load(tmp_path / f"{step.name}.npz") as saved,
                np.load(DATA / f"{step.name}.npz") as real,
            ):
                lengths = saved["sequence_lengths"]
                for name in saved.files:
                    first = real[name][: len(saved[name])]
                    np.testing.assert_array_equal(saved[name], first)
                names = ("rollout_log_probs", "old_log_probs", "response_mask")
                batch = {name: saved[name] for name in names}
            result = client.correct(method="token_tis", sequence_lengths=lengths, **batch)
            assert f"{result.metrics['k3']:#.3g}" in text
    # One word means one interval: the table names the one that is not the preset's default.
    assert "geo_rs\n" in text
    assert "0.95 to 1.05\n" in text


def test_help_and_version() -> None:
    for arguments in ((), ("--help",)):
        text = done(*arguments)
        for command in ("correct", "compare", "demo", "doctor", "methods", "serve", "suggest"):
            assert command in text
    assert done("--version") == f"counterweight, version {cw.__version__}\n"
