"""Runs scenarios: the scripted server, the clients' drivers, and what both report."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from concurrent import futures
from dataclasses import dataclass
from typing import Any, ClassVar

from certificates import Authority
from proxy import Proxy

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
DRIVERS = ("python-sync", "python-asyncio", "cpp", "go")
# An ample bound for one run; only a hang reaches it. The longest waits 42 s for keepalive, on a machine that may be slow.
RUN_SECONDS = 300
# Runs of one driver at a time: they mostly wait for clocks.
CONCURRENT_RUNS = 8


@dataclass(frozen=True)
class Scenario:
    """One entry of a file of ``scenarios``.

    Attributes:
        name: "retries/unavailable".
        about: The entry; README.md has its members.
    """

    name: str
    about: dict[str, Any]

    def expected(self, driver: str) -> dict[str, Any]:
        """Returns the expectations of a driver's run."""
        expect = dict(self.about["expect"])
        for key in [key for key in expect if key in DRIVERS or key == "python"]:
            changes = expect.pop(key)
            if driver.startswith(key):
                expect = {**expect, **changes}
        return expect


def scenarios() -> list[Scenario]:
    plain = [
        Scenario(f"{path.stem}/{name}", about)
        for path in sorted((HERE / "scenarios").glob("*.json"))
        for name, about in json.loads(path.read_text()).items()
    ]
    return plain + [secured(scenario) for scenario in plain if can_be_secured(scenario)]


def can_be_secured(scenario: Scenario) -> bool:
    """Whether nothing of the scenario is about the connection itself.

    The scenario's version numbers distinguish warnings, so they have one run.
    """
    if "warnings" in scenario.about["expect"]:
        return False
    about = {*scenario.about.get("server", {}), *scenario.about.get("client", {}), *scenario.about}
    return not about & {
        "unix",
        "memory",
        "cut",
        "listen",
        "tls",
        "token",
        "addresses",
        "target",
        "proxy",
    }


def secured(scenario: Scenario) -> Scenario:
    """Returns the scenario with mutual TLS and a token, which change nothing else."""
    about = scenario.about
    server = {"tls": {"certificate": "server", "client_authority": "authority"}, "token": "t0ken"}
    client = {
        "tls": {"root_certificates": "authority", "certificate": "client"},
        "token": "t0ken",
    }
    changed = {
        "server": {**about.get("server", {}), **server},
        "client": {**about.get("client", {}), **client},
    }
    return Scenario(f"{scenario.name}-secured", {**about, **changed})


class Files:
    """The certificates and tokens that scenarios name."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        authority, stranger = (Authority(folder, name) for name in ("authority", "stranger"))
        self._authorities = {
            "authority": authority.certificate,
            "other_authority": stranger.certificate,
        }
        self._pairs = {
            "server": authority.sign("server"),
            "elsewhere": authority.sign("elsewhere", "DNS:elsewhere.example"),
            "expired": authority.sign("expired", days=-1),
            "client": authority.sign("client"),
            "other_client": stranger.sign("client"),
        }

    def placed(self, about: dict[str, Any]) -> dict[str, Any]:
        """Returns a scenario's server or client with paths instead of names."""
        placed = dict(about)
        if "token_file" in about:
            # Each run has its own: writing a file again empties it for a moment.
            with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:
                file.write(about["token_file"])
            placed["token_file"] = file.name
        if "tls" in about:
            tls = dict(about["tls"])
            for name in {"root_certificates", "client_authority"} & set(tls):
                tls[name] = str(self._authorities[tls[name]])
            if "certificate" in tls:
                pair = self._pairs[tls["certificate"]]
                tls |= {"certificate": str(pair.certificate), "key": str(pair.key)}
            placed["tls"] = tls
        return placed


@dataclass(frozen=True)
class Report:
    """The reports of one run.

    Attributes:
        driver: {"calls", "warnings"}.
        server: {"calls", "packets"}.
        proxy: What the proxy got for the server, ["connect", "sent"].
    """

    driver: dict[str, Any]
    server: dict[str, Any]
    proxy: list[dict[str, Any]]


class Server:
    """The process ``conformance_server``; thread-safe."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path) -> None:
        self._process = subprocess.Popen(
            [program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer

    def stop(self) -> None:
        self._process.communicate(timeout=RUN_SECONDS)


class Driver:
    """A driver's process, which makes any number of runs at once; thread-safe.

    Attributes:
        running: All that were started and not stopped.
    """

    running: ClassVar[set[Driver]] = set()

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._lock = threading.Lock()
        self._runs: list[futures.Future[dict[str, Any]]] = []
        # The interpreter does not wait for it.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.running.add(self)
        # A run without calls: the clocks of scenarios must not start while the process does.
        self.run({"target": "localhost:1", "client": {}, "calls": []})

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """Returns the report of a run."""
        assert self._process.stdin is not None
        future: futures.Future[dict[str, Any]] = futures.Future()
        with self._lock:
            number = len(self._runs)
            self._runs.append(future)
            self._process.stdin.write(json.dumps({"run": number, **command}) + "\n")
            self._process.stdin.flush()
        report = future.result(RUN_SECONDS)
        assert "failed" not in report, report
        return report

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(RUN_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self.running.discard(self)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line)
            self._runs[report["run"]].set_result(report)
        for future in self._runs:
            if not future.done():
                future.set_exception(RuntimeError("the driver has ended"))


def commands(build: pathlib.Path) -> dict[str, list[str]]:
    """Returns the command line of each driver."""
    python = [sys.executable, str(HERE / "drivers/driver.py")]
    return {
        "python-sync": [*python, "sync"],
        "python-asyncio": [*python, "asyncio"],
        "cpp": [str(build / "conformance/conformance_driver")],
        "go": [str(build / "conformance/conformance_driver_go")],
    }


def build_go(build: pathlib.Path) -> None:
    """Builds the driver of the Go client."""
    target = build / "conformance/conformance_driver_go"
    go = [str(REPOSITORY / ".ci/with_go"), "go", "build", "-C", str(REPOSITORY / "client/go")]
    subprocess.run([*go, "-o", str(target), "./internal/conformance"], check=True)


def run(scenario: Scenario, server: Server, driver: Driver, files: Files, proxy: Proxy) -> Report:
    about = scenario.about
    opened = server.ask({"open": files.placed(about.get("server", {}))})
    port = opened["target"].rpartition(":")[2]
    try:
        command = {name: about[name] for name in ("calls", "concurrent") if name in about}
        command["client"] = files.placed(about.get("client", {}))
        command["target"] = about.get("target", opened["target"]).replace("PORT", port)
        answer = driver.run(command)
    finally:
        # Another run may get the port when the server is closed.
        taken = proxy.take(port)
        seen = server.ask({"close": opened["server"]})
    return Report(answer, seen, taken)


def longest_pause(pair: tuple[Scenario, str]) -> float:
    return max(float(call.get("after", 0)) for call in pair[0].about["calls"])


def run_all(
    pairs: list[tuple[Scenario, str]], build: pathlib.Path, folder: pathlib.Path
) -> dict[tuple[str, str], futures.Future[Report]]:
    """Runs every pair of a scenario and a driver, several at once."""
    reports: dict[tuple[str, str], futures.Future[Report]] = {}
    server = Server(build / "conformance/conformance_server", folder)
    files = Files(folder / "files")
    proxy = Proxy()
    # By name, and whether the environment has the proxy.
    drivers: dict[tuple[str, bool], Driver] = {}
    with contextlib.ExitStack() as started:
        started.callback(proxy.stop)
        started.callback(server.stop)
        with futures.ThreadPoolExecutor(CONCURRENT_RUNS * len(DRIVERS)) as workers:
            # The ones that wait longest begin first and do not prolong the whole.
            for scenario, name in sorted(pairs, key=longest_pause, reverse=True):
                key = name, scenario.about.get("proxy", False)
                if key not in drivers:
                    environment = proxy.environment() if key[1] else None
                    drivers[key] = Driver(commands(build)[name], environment)
                    started.callback(drivers[key].stop)
                reports[scenario.name, name] = workers.submit(
                    run, scenario, server, drivers[key], files, proxy
                )
    return reports
