"""Flags, environment and file of a running server, SIGHUP, and probes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from preloads import preload
from server_process import DEADLINE_SECONDS, ServerProcess, binary, wait_until

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]

NOT_SERVING = b"\x08\x02"


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary()), *flags],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=DEADLINE_SECONDS,
    )


def is_one_sentence(text: str) -> bool:
    return text.startswith("counterweight-server: ") and text.index("\n") == len(text) - 1


def write(path: pathlib.Path, text: str) -> str:
    path.write_text(text)
    return f"--config={path}"


def test_each_source_wins_over_the_next(start_server: StartServer, tmp_path: pathlib.Path) -> None:
    file = write(tmp_path / "cw.yaml", "threads: 1\nmax_tokens: 1\nmax_sequences: 11\n")
    server = start_server(
        file,
        "--threads=3",
        environment={"COUNTERWEIGHT_THREADS": "2", "COUNTERWEIGHT_MAX_TOKENS": "22"},
    )
    with cw.Client(server.address) as client:
        info = client.server_info()
    assert (info.threads, info.limits.max_tokens, info.limits.max_sequences) == (3, 22, 11)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\nmax_token: 4\n", ":2: unknown key 'max_token': did you mean max_tokens?"),
        ("threads: [\n", ": is no YAML: "),
        ("threads: 1\nthreads: 2\n", ":2: threads comes twice"),
        ("threads: many\n", ":1: threads=many: must be an integer from 0 to 4096"),
        ("log_level: {a: b}\n", ":1: log_level: must be a single value"),
    ],
)
@pytest.mark.parametrize("check", [(), ("--check_config",)])
def test_a_wrong_file_is_exit_code_2(
    tmp_path: pathlib.Path, text: str, problem: str, check: tuple[str, ...]
) -> None:
    ended = run(write(tmp_path / "cw.yaml", text), *check)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert is_one_sentence(ended.stderr), ended.stderr
    assert f"{tmp_path}/cw.yaml:" in ended.stderr
    assert problem in ended.stderr


def test_an_unknown_variable_is_exit_code_2() -> None:
    ended = run("--check_config", COUNTERWEIGHT_LOG_LEVL="debug")
    assert ended.returncode == 2
    assert ended.stderr == (
        "counterweight-server: unknown environment variable COUNTERWEIGHT_LOG_LEVL:"
        " did you mean COUNTERWEIGHT_LOG_LEVEL?\n"
    )
    # A client's, and those that Kubernetes sets for a service called counterweight.
    others = {
        "COUNTERWEIGHT_TARGET": "unix:/run/cw.sock",
        "COUNTERWEIGHT_PORT_50051_TCP_ADDR": "10.0.0.1",
        "COUNTERWEIGHT_SERVICE_PORT": "50051",
    }
    assert run("--check_config", **others).returncode == 0


def test_what_cannot_start_names_the_file(tmp_path: pathlib.Path, server: ServerProcess) -> None:
    taken = run(write(tmp_path / "cw.yaml", f"listen: {server.address}\nmetrics_listen: ''\n"))
    assert taken.returncode == 1
    sentence = taken.stderr.splitlines(keepends=True)[-1]
    assert is_one_sentence(sentence)
    assert f"--listen={server.address}: the port is taken" in sentence
    assert f"(--listen comes from {tmp_path}/cw.yaml:1)" in sentence
    missing = run("--listen=127.0.0.1:0", "--metrics_listen=", COUNTERWEIGHT_DEVICES="4095")
    assert missing.returncode == 1
    sentence = missing.stderr.splitlines(keepends=True)[-1]
    assert is_one_sentence(sentence)
    assert "--devices=4095: " in sentence
    assert "(--devices comes from COUNTERWEIGHT_DEVICES)" in sentence


def test_sighup_takes_up_limits_and_names_the_rest(
    start_server: StartServer, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "cw.yaml"
    server = start_server(write(path, "max_tokens: 1000000\n"))
    batch = padded_batch()
    with cw.Client(server.address) as client:
        assert client.correct(method="token_tis", **batch).metrics
        path.write_text("max_tokens: 1\nthreads: 3\n")
        server.process.send_signal(signal.SIGHUP)
        (line,) = server.events("config_reloaded")
        assert line["changed"] == {"max_tokens": "1"}
        assert line["needs_restart"] == ["threads"]
        assert line["level"] == "warning"
        with pytest.raises(cw.InvalidRequestError):
            client.correct(method="token_tis", **batch)
        assert client.server_info().limits.max_tokens == 1

        # A broken file changes nothing.
        path.write_text("max_tokens: 5\nmax_tokns: 6\n")
        server.process.send_signal(signal.SIGHUP)
        (failed,) = server.events("config_reload_failed")
        assert failed["level"] == "error"
        assert f"{path}:2: unknown key 'max_tokns'" in str(failed["error"])
        assert server.metric("counterweight_config_last_reload_success") == 0
        assert client.server_info().limits.max_tokens == 1

        path.write_text("max_tokens: 1000000\nlog_level: error\n")
        server.process.send_signal(signal.SIGHUP)
        assert server.events("config_reloaded", 2)[1]["changed"] == {
            "max_tokens": "1000000",
            "log_level": "error",
        }
        assert server.metric("counterweight_config_last_reload_success") == 1
        lines = len(server.log_lines())
        assert client.correct(method="token_tis", **batch).metrics
        assert len(server.log_lines()) == lines
    server.terminate()
    assert server.wait() == 0


def test_sighup_does_not_end_a_drain(start_server: StartServer) -> None:
    server = start_server("--drain_delay=600")
    server.terminate()
    wait_until_draining(server)
    server.process.send_signal(signal.SIGHUP)
    with cw.Client(server.address) as client:
        assert client.server_info().version
    server.terminate()
    assert server.wait() == 0


def wait_until_draining(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE_SECONDS)
        assert any(answer == NOT_SERVING for answer in watch)
        watch.cancel()


def page(server: ServerProcess, path: str) -> tuple[int, str]:
    url = server.metrics_url.removesuffix("/metrics") + path
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_SECONDS) as answer:
            return answer.status, str(answer.read(), "utf-8")
    except urllib.error.HTTPError as error:
        return error.code, str(error.read(), "utf-8")


def test_probes_follow_the_server(start_server: StartServer, folder: pathlib.Path) -> None:
    server = start_server("--drain_delay=600", f"--listen=unix:{folder}/probed")
    targets = [server.address, f"unix:{folder}/probed"]
    for target in targets:
        ended = run(f"--probe={target}")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == f"counterweight-server: {target} is SERVING\n"
    assert page(server, "/livez") == (200, "ready\n")
    assert page(server, "/readyz") == (200, "ready\n")

    server.terminate()
    wait_until_draining(server)
    for target in targets:
        ended = run(f"--probe={target}")
        assert ended.returncode == 1
        assert ended.stderr == f"counterweight-server: {target} is NOT_SERVING\n"
    assert page(server, "/livez") == (200, "draining\n")
    assert page(server, "/readyz") == (503, "draining\n")

    server.terminate()
    assert server.wait() == 0
    for target in targets:
        ended = run(f"--probe={target}")
        assert ended.returncode == 1
        assert is_one_sentence(ended.stderr)
        assert target in ended.stderr


@contextlib.contextmanager
def stopped(server: ServerProcess) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_probe_has_a_deadline(start_server: StartServer, folder: pathlib.Path) -> None:
    server = start_server(f"--listen=unix:{folder}/stopped")
    with stopped(server):
        for target in [server.address, f"unix:{folder}/stopped"]:
            ended = run(f"--probe={target}", "--probe_timeout=0.2")
            assert ended.returncode == 1
            assert ended.stderr == f"counterweight-server: {target} did not answer within 0.2 s\n"
    assert run(f"--probe={server.address}", "--probe_timeout=30").returncode == 0


def test_a_probe_of_nonsense_is_exit_code_2() -> None:
    for flag in ["--probe=localhost", "--probe=", "--probe_timeout=0"]:
        ended = run(flag)
        assert ended.returncode == 2
        assert is_one_sentence(ended.stderr)


def test_stopping_waits_for_no_idle_client(start_server: StartServer) -> None:
    server = start_server("--drain_timeout=600")
    with cw.Client(server.address) as client:
        assert client.server_info().version
        server.terminate()
        assert server.wait() == 0


EARLY_SIGHUP = r"""
#include <signal.h>
__attribute__((constructor)) static void Early(void) { raise(SIGHUP); }
"""


def test_a_sighup_before_main_is_a_reload(
    start_server: StartServer, tmp_path: pathlib.Path
) -> None:
    file = write(tmp_path / "cw.yaml", "max_tokens: 1000\n")
    server = start_server(file, environment=preload(EARLY_SIGHUP, tmp_path))
    assert server.events("config_reloaded")[0]["changed"] == {}
    server.terminate()
    assert server.wait() == 0


@pytest.mark.parametrize("flag", ["--hash_token=name", "--probe=127.0.0.1:{port}"])
def test_a_run_that_only_waits_ends_at_a_signal(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        arguments = [str(binary()), flag.format(port=port), "--probe_timeout=600"]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as asked:
            wait_until_unblocked(asked.pid)
            asked.terminate()
            assert asked.wait(DEADLINE_SECONDS) == -signal.SIGTERM


def wait_until_unblocked(pid: int) -> None:
    """Waits until the process runs its own code, and takes SIGTERM."""
    bits = 1 << (signal.SIGTERM - 1), 1 << (signal.SIGPIPE - 1)

    def takes_it() -> bool:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        blocked, ignored = (
            int(status.split(name)[1].split()[0], 16) for name in ("SigBlk:", "SigIgn:")
        )
        # It ignores SIGPIPE since it blocked SIGTERM for the first time.
        return bool(ignored & bits[1]) and not blocked & bits[0]

    wait_until(takes_it)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"max_tokens: 010\n", "max_tokens=010: must be an integer"),
        (b"max_tokens: 00\n", "max_tokens=00: must be an integer"),
        (b"drain_delay: 010\n", "drain_delay=010: must be a number"),
        (b"shared_memory_uids: [010]\n", "shared_memory_uids=010: must be numbers"),
        ("max_tokens: 5\n".encode("utf-16"), "must be UTF-8"),
        ("max_tokens: 5\n".encode("utf-16-le"), "must be UTF-8"),
        ("max_tokens: 5\n".encode("utf-32"), "must be UTF-8"),
    ],
)
def test_a_file_that_others_would_read_otherwise(
    tmp_path: pathlib.Path, text: bytes, wrong: str
) -> None:
    path = tmp_path / "cw.yaml"
    path.write_bytes(text)
    ended = run(f"--config={path}", "--check_config")
    assert ended.returncode == 2
    assert wrong in ended.stderr
    assert is_one_sentence(ended.stderr)


def test_a_file_with_the_mark_of_utf_8(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cw.yaml"
    path.write_bytes(
        "max_tokens: 5\ndrain_delay: 0.5\nmax_queued_requests: 0\n".encode("utf-8-sig")
    )
    assert run(f"--config={path}", "--check_config").returncode == 0
