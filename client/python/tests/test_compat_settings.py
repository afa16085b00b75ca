"""The server that counterweight_rl.compat calls, and its deadlines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from compat_service import METRICS, answers
from fake_server import FakeServer, failing, in_turn, retry_info
from sample import MASK, OLD, ROLLOUT

import counterweight_rl as cw
from counterweight_rl import compat
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.compat import _service, _settings

NAMES = (
    *("target", "run", "timeout", "retry_seconds"),
    *("non_finite", "on_unavailable", "token_file", "publish", "report_steps", "over_ranks"),
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in NAMES:
        monkeypatch.delenv(f"COUNTERWEIGHT_{name.upper()}", raising=False)
    yield
    monkeypatch.undo()
    compat.use()


@pytest.fixture
def answering(server: FakeServer) -> FakeServer:
    server.handler = answers(METRICS)
    return server


def ask() -> None:
    _service.correct("verl", {}, old_log_probs=OLD, rollout_log_probs=ROLLOUT, response_mask=MASK)


def settings(**given: Any) -> dict[str, Any]:
    return vars(_settings.read(given))


def test_defaults() -> None:
    assert settings() == {
        "target": "localhost:50051",
        "run": None,
        "timeout": 120.0,
        "retry_seconds": 60.0,
        "non_finite": cw.NonFinitePolicy.REJECT,
        "on_unavailable": "raise",
        "token_file": None,
        "publish": None,
        "report_steps": True,
        "over_ranks": False,
    }


def test_the_environment_and_what_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_TARGET", "unix:/run/cw.sock")
    monkeypatch.setenv("COUNTERWEIGHT_RUN", "from-env")
    monkeypatch.setenv("COUNTERWEIGHT_TIMEOUT", "900")
    monkeypatch.setenv("COUNTERWEIGHT_RETRY_SECONDS", "600.5")
    monkeypatch.setenv("COUNTERWEIGHT_NON_FINITE", "DROP")
    monkeypatch.setenv("COUNTERWEIGHT_ON_UNAVAILABLE", "local")
    monkeypatch.setenv("COUNTERWEIGHT_TOKEN_FILE", "/run/token")
    monkeypatch.setenv("COUNTERWEIGHT_PUBLISH", "unix:/run/metrics.sock")
    monkeypatch.setenv("COUNTERWEIGHT_REPORT_STEPS", "False")
    monkeypatch.setenv("COUNTERWEIGHT_OVER_RANKS", "true")
    from_environment = {
        "target": "unix:/run/cw.sock",
        "run": "from-env",
        "timeout": 900.0,
        "retry_seconds": 600.5,
        "non_finite": cw.NonFinitePolicy.DROP,
        "on_unavailable": "local",
        "token_file": "/run/token",
        "publish": "unix:/run/metrics.sock",
        "report_steps": False,
        "over_ranks": True,
    }
    assert settings() == from_environment
    given = {
        "target": "localhost:1",
        "run": "given",
        "timeout": 7,
        "retry_seconds": 0,
        "non_finite": cw.NonFinitePolicy.NEUTRALIZE,
        "on_unavailable": "identity",
        "token_file": "/run/other",
        "publish": "localhost:2",
        "report_steps": True,
        "over_ranks": False,
    }
    assert settings(**given) == given
    for name, value in given.items():
        if name != "timeout":  # less than the variable's retry_seconds
            assert settings(**{name: value}) == {**from_environment, name: value}
    # Deployments write "" for "not set".
    for name in NAMES:
        monkeypatch.setenv(f"COUNTERWEIGHT_{name.upper()}", "")
    assert settings()["target"] == "localhost:50051"


@pytest.mark.parametrize(
    ("given", "timeout", "retry_seconds"),
    [
        ({"retry_seconds": 600}, 660, 600),
        ({"retry_seconds": 0}, 60, 0),
        ({"timeout": 30}, 30, 30),
        ({"timeout": 300}, 300, 60),
        ({"timeout": 5, "retry_seconds": 5}, 5, 5),
    ],
)
def test_timeouts_include_retries(
    given: dict[str, float], timeout: float, retry_seconds: float
) -> None:
    read = settings(**given)
    assert (read["timeout"], read["retry_seconds"]) == (timeout, retry_seconds)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("run", "my run", r"must match \[A-Za-z0-9_\.-\]\{1,64\}; got 'my run'"),
        ("timeout", "soon", "must be a number of seconds; got 'soon'"),
        ("timeout", "0", "must be above 0 seconds; got 0"),
        ("timeout", "nan", "must be above 0 seconds; got nan"),
        ("retry_seconds", "-1", "must be at least 0 seconds; got -1"),
        ("retry_seconds", "nan", "must be at least 0 seconds; got nan"),
        ("non_finite", "ignore", "must be one of reject, drop, neutralize; got 'ignore'"),
        ("on_unavailable", "wait", "must be one of raise, local, identity; got 'wait'"),
        ("report_steps", "yes", "must be true or false; got 'yes'"),
        ("over_ranks", "world", "must be true or false; got 'world'"),
    ],
)
def test_bad_values_name_where_they_come_from(
    answering: FakeServer, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"^{name} {message}"):
        compat.use(**arguments)
    compat.use(target=answering.target)
    variable = f"COUNTERWEIGHT_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"^{variable} {message}"):
        ask()
    assert answering.requests == []


def test_retries_longer_than_the_timeout_name_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_TIMEOUT", "30")
    with pytest.raises(
        ValueError, match=r"^retry_seconds must be at most COUNTERWEIGHT_TIMEOUT.*; got 60 and 30"
    ):
        compat.use(retry_seconds=60)


@pytest.mark.parametrize(
    ("name", "value"),
    [("target", 7), ("timeout", True), ("run", b"x"), ("report_steps", 1), ("over_ranks", 2)],
)
def test_arguments_of_wrong_types(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(TypeError, match=f"^{name} must be a"):
        compat.use(**arguments)


def test_a_clients_own_is_not_given_beside_it(client: cw.Client) -> None:
    with pytest.raises(
        ValueError, match=r"^timeout and retry_seconds cannot be given with a client"
    ):
        compat.use(client, timeout=1, retry_seconds=1)


def test_what_a_batch_says(
    answering: FakeServer, client: cw.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_TARGET", answering.target)
    monkeypatch.setenv("COUNTERWEIGHT_RUN", "from-env")
    monkeypatch.setenv("COUNTERWEIGHT_NON_FINITE", "drop")
    compat.use()
    ask()
    compat.use(client)
    ask()
    compat.use(client, run="given", non_finite="neutralize")
    ask()
    assert [(r.labels.run, r.non_finite_policy) for r in answering.requests] == [
        ("from-env", tensor_pb2.NON_FINITE_POLICY_DROP),
        ("from-env", tensor_pb2.NON_FINITE_POLICY_DROP),
        ("given", tensor_pb2.NON_FINITE_POLICY_NEUTRALIZE),
    ]


def test_the_client_is_made_once_in_each_process(
    answering: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compat.use(target=answering.target)
    ask()
    assert answering.requests[0].labels.run == ""
    made = compat.client()
    assert compat.client() is made
    # After fork() the channel belongs to the parent.
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert compat.client() is not made
    compat.client().close()
    made.close()


def test_a_call_is_tried_more_often_than_a_clients(answering: FakeServer) -> None:
    draining = failing(grpc.StatusCode.UNAVAILABLE, "draining", retry_info(1))
    answering.handler = in_turn(*[draining] * 8, answers(METRICS))
    compat.use(target=answering.target)
    ask()
    assert len(answering.requests) == 9
    compat.client().close()


def test_retry_seconds_0_is_one_attempt(answering: FakeServer) -> None:
    answering.handler = failing(grpc.StatusCode.UNAVAILABLE, "draining", retry_info(1))
    compat.use(target=answering.target, retry_seconds=0)
    with pytest.raises(cw.UnavailableError, match="draining"):
        ask()
    assert len(answering.requests) == 1
    compat.client().close()


def test_a_check_of_the_server(answering: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    compat.use(target=answering.target)
    connected: list[cw.Client] = []
    connect = _settings.Settings.connect

    def remembered(settings: _settings.Settings) -> cw.Client:
        connected.append(connect(settings))
        return connected[-1]

    monkeypatch.setattr(_settings.Settings, "connect", remembered)
    _service.check()
    assert answering.requests == []
    (client,) = connected
    with pytest.raises(cw.CounterweightError, match="closed"):
        client.server_info()


def test_a_check_without_a_server() -> None:
    compat.use(target="localhost:1", retry_seconds=0)
    with pytest.raises(cw.UnavailableError, match=r"^no server answers at localhost:1"):
        _service.check()
    compat.use(target="localhost:1", retry_seconds=0, on_unavailable="identity")
    with pytest.warns(UserWarning, match="no server answers at localhost:1; .*'identity'"):
        _service.check()


FORK = """
import os, signal, threading
from counterweight_rl import compat
from counterweight_rl.compat import _service
held, done = threading.Barrier(2), threading.Event()
def hold():
    with _service._lock:
        held.wait(60)
        done.wait(60)
holder = threading.Thread(target=hold)
holder.start()
held.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(60)
    compat.use(target="local:")
    os._exit(0)
done.set()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    # A process of its own: this one has threads of gRPC.
    assert subprocess.run([sys.executable, "-c", FORK], check=False).returncode == 0
