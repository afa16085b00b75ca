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
PAIRS = [
    (scenario, driver)
    for scenario in SCENARIOS
    for driver in harness.DRIVERS
    if not driver.startswith(tuple(scenario.about.get("without", ())))
]

# All runs are in the first test's time.
pytestmark = [pytest.mark.server_only, pytest.mark.timeout(1500)]


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


def test_runs_at_once_do_not_write_each_other_s_files(tmp_path: pathlib.Path) -> None:
    files = harness.Files(tmp_path)
    first, second = (files.placed({"token_file": "t0ken"})["token_file"] for _ in range(2))
    assert first != second
