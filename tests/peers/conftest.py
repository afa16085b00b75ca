"""The server, and each test's outcome for the table of ``.ci/peers``.

In a passing test the peer's function and ours are equal or, if it called ``documented``, equal
except for a difference that our pages state. A strict xfail is a mistake.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import releases

releases.activate_release()

import counterweight_rl as cw  # noqa: E402
from counterweight_rl import compat  # noqa: E402
from server_process import ServerProcess  # noqa: E402

RESULTS_VARIABLE = "COUNTERWEIGHT_PEER_RESULTS"
_outcomes: list[dict[str, Any]] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "compares(function): the peer's function that a test calls; else the table has the file's name",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("compares")
        name = marker.args[0] if marker else item.path.stem.removeprefix("test_")
        item.user_properties.append(("function", name))


@pytest.fixture(scope="session", autouse=True)
def service() -> Iterator[None]:
    """compat calls a server of this session's own.

    The release is not set: it is the installed one, as in a trainer.
    """
    with pytest.MonkeyPatch.context() as patch:
        # Loopback is not for the developer's proxy.
        patch.setenv("no_proxy", "*")
        server = ServerProcess()
        # For processes that a test starts.
        patch.setenv("COUNTERWEIGHT_TARGET", server.address)
        try:
            with cw.Client(server.address) as client:
                compat.use(client)
                yield
        finally:
            compat.use(None)
            server.stop()


@pytest.fixture
def documented(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Declares the following assertions to be a difference that our pages state."""

    def say(difference: str) -> None:
        request.node.user_properties.append(("documented", difference))

    return say


@pytest.fixture
def mistake(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Declares the following assertions to fail by mistake; the test fails if they pass.

    A later call hides fewer assertions.
    """

    def say(reason: str, raises: type[BaseException] = AssertionError) -> None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason, raises=raises))

    return say


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    properties = dict(report.user_properties)
    if report.when == "call" or report.failed or report.skipped:
        known = hasattr(report, "wasxfail")
        _outcomes.append(
            {
                "function": properties["function"],
                "outcome": "known" if known and report.skipped else report.outcome,
                "why": report.wasxfail if known else properties.get("documented"),
            }
        )


def pytest_sessionfinish() -> None:
    path = os.environ.get(RESULTS_VARIABLE)
    if path:
        release = releases.RELEASE or releases.commit()
        results = {"peer": releases.PEER, "release": release, "outcomes": _outcomes}
        pathlib.Path(path).write_text(json.dumps(results))
