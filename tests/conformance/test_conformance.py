"""Every client against every scenario; README.md has the protocol."""

from __future__ import annotations

import json
import pathlib
import re
from concurrent import futures

import expectations
import harness
import pytest
from harness import HERE, REPOSITORY, Report, Scenario

SCENARIOS = harness.scenarios()
PAIRS = [(scenario, driver) for scenario in SCENARIOS for driver in scenario.drivers]

# The C++ client has no close: its destructor comes after the last call.
LEFT_OUT = {("deadlines/closed_while_calls_run", "cpp"), ("deadlines/closed_in_a_pause", "cpp")} | {
    (f"security/{scenario}", driver)  # Go's alone has an option for tokens.
    for scenario in ("a_token_with_every_call", "a_refused_token_is_not_shown")
    for driver in ("python-sync", "python-asyncio", "cpp")
}

pytestmark = [pytest.mark.server_only, pytest.mark.timeout(180)]


@pytest.fixture(scope="session")
def reports(
    request: pytest.FixtureRequest, build: pathlib.Path, sockets: pathlib.Path
) -> dict[tuple[str, str], futures.Future[Report]]:
    """Reports of every selected pair; they run at once, because they wait for clocks."""
    selected = [
        item.callspec.params["pair"]
        for item in request.session.items
        if getattr(item, "originalname", "") == "test_scenario" and hasattr(item, "callspec")
    ]
    return harness.run_all(selected, build, sockets)


@pytest.mark.parametrize("pair", PAIRS, ids=[f"{s.name}-{driver}" for s, driver in PAIRS])
def test_scenario(
    reports: dict[tuple[str, str], futures.Future[Report]], pair: tuple[Scenario, str]
) -> None:
    scenario, driver = pair
    report = reports[scenario.name, driver].result()
    found = expectations.failures(scenario, driver, report)
    assert not found, json.dumps(report.__dict__, indent=1)[:6000]


def rules() -> list[int]:
    page = (REPOSITORY / "client/README.md").read_text()
    return [int(number) for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE)]


def test_every_rule_has_a_scenario() -> None:
    unscripted = json.loads((HERE / "unscripted_rules.json").read_text())
    proven = {rule for scenario in SCENARIOS for rule in scenario.about["rules"]}
    numbers = rules()
    assert numbers == list(range(1, len(numbers) + 1))
    assert proven <= set(numbers)
    assert set(numbers) - proven == {int(rule) for rule in unscripted}


def test_only_a_client_without_the_call_is_left_out() -> None:
    left_out = {(s.name, d) for s in SCENARIOS for d in set(harness.DRIVERS) - set(s.drivers)}
    assert left_out == LEFT_OUT
