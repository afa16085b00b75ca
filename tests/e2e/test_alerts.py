"""The alerts of deploy/prometheus: promtool's unit tests, and checks beyond them."""

from __future__ import annotations

import pathlib
import re
import subprocess
from collections.abc import Callable

import pytest
from server_process import REPOSITORY

pytestmark = pytest.mark.server_only

FOLDER = REPOSITORY / "deploy/prometheus"
RUNBOOKS = REPOSITORY / "deploy/runbooks"
HEADINGS = ["## Symptom", "## Effect", "## Remedy"]
# An alert of rules.yml: its name, and the text up to the next one.
ALERT = re.compile(r"- alert: (\w+)\n(.*?)(?=\n +- alert:|\n  - name:|\Z)", re.S)


def alerts() -> list[tuple[str, str]]:
    found = ALERT.findall((FOLDER / "rules.yml").read_text())
    assert len(found) >= 15
    return found


def test_each_alert_fires_when_it_should_and_is_silent_when_it_should_not(
    tool: Callable[[str], str],
) -> None:
    for arguments in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            [tool("promtool"), *arguments],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_is_without_its_tests() -> None:
    text = (FOLDER / "rules_test.yml").read_text()
    for name, _ in alerts():
        assert re.search(rf"alertname: {name}, eval_time: \w+, exp_alerts: \[\]", text), name
        assert re.search(rf"alertname: {name}\n +eval_time: \w+\n +exp_alerts:\n", text), name


@pytest.mark.parametrize(("name", "text"), alerts())
def test_an_alert_says_how_bad_it_is_and_leads_to_its_runbook(name: str, text: str) -> None:
    assert re.search(r"\n +for: \d+[mh]\n", text)
    severity = re.search(r"labels: {severity: (critical|warning)}", text)
    assert severity is not None
    url = re.search(r"runbook_url: https://\S+/deploy/runbooks/(\w+\.md)", text)
    assert url is not None
    runbook = (RUNBOOKS / url[1]).read_text()
    assert name in runbook.splitlines()[0]
    assert [line for line in runbook.splitlines() if line.startswith("## ")] == HEADINGS
    index = (RUNBOOKS / "README.md").read_text().splitlines()
    (row,) = [line for line in index if f"({url[1]})" in line]
    assert name in row
    assert severity[1] in row


# promtool has to complain of every change below: a test that no mistake fails proves nothing. By name: the case of
# rules_test.yml that has to see it, a pattern in rules.yml, and its replacement.
MISTAKES = {
    "a threshold": ("drift", r"> 3$", "> 30000"),
    "the floor": ("drift", r"^ +and run:counterweight_drift_k3_nats:eight_steps > 0.001\n", ""),
    "single batches": ("eight steps", r"k3_nats:eight_steps(?= / run:.* > 3$)", "k3_nats:avg"),
    "one server alone": ("eight steps", r"sum (?=by \(job, run\) \(\S+k3_sum_nats\))", "min "),
    "weights of 1": ("eight steps", r"clamp_min\((quantile_over_time.*), 1e-4\)", r"\1"),
    "a rounding error below 0": ("eight steps", r"^ {12}0\n", "            -1\n"),
    "what weights cost of nothing": ("eight steps", r"^ +and run:.*loss:eight_steps > 0.01\n", ""),
    "the first hour": ("drift", r"^ +and run:.* offset 1h >= 0\n", ""),
    "a run that is over": ("drift", r" unless on .* offset 1h(?=\)$)", ""),
    "the wait": ("not ready", r"for: (2m|5m|10m|15m|1h)", "for: 0m"),
    "what an increase does not see": (
        "non-finite numbers",
        r"^ +or \(counterweight_drift_non_finite.*\n.*\)\n",
        "",
    ),
    "another program's target": ("down", r"up == 0 and on.*", "up == 0"),
    "no certificate": (
        "certificate",
        r"\((counterweight_tls_certificate_expiry_seconds) > 0\)",
        r"\1",
    ),
    "methods that correct nothing": (
        "nothing corrected although requests come",
        r'{method=~"Correct\|CorrectStream"}\[15m',
        "[15m",
    ),
    "most of a run": ("most dropped", r"< 0.5$", "< 0.05"),
    "nearly all of a run": ("most dropped", r"< 0.05$", "< 0.5"),
    "a run of which nothing is kept": ("most dropped", r"expr: 0 < (run:\w+:avg)", r"expr: \1"),
    "one server of two": ("everything dropped", r"or avg by", "or min by"),
    "a server that the run left": (
        "a server that the run left, by gauges alone",
        r" unless on .* offset 1h(?=\)$)",
        "",
    ),
    "sums before gauges": (
        "several servers",
        r"sum by \(job, run\) \(rate\(counterweight_drift_k3_sum_nats_total",
        "sum by (job, run) (rate(nothing",
    ),
    "an older server": ("several servers", r" and on \(job, instance, run\) \w+\)", ")"),
    "a slow run's last step": ("several servers", r"\[15m\]", "[1h]"),
    "weights that are all 0": (
        "effective sample size of several servers",
        r"clamp_min\((sum by \(job, run\) \(rate\(\w+\[\w+\]\)\)), 1e-99\)",
        r"\1",
    ),
    "receipts without batches of a server": (
        "steps without corrections",
        r"^ +unless .*entry=\"corrected\".*\n",
        "",
    ),
    "a run without receipts": ("every second batch skipped", r" > 0\)$", ")"),
    "one step of many": ("unused weights", r"> 0.5$", "> 0"),
    "a step that lacks a report": ("missing reports", r"> 0.5$", "> 0"),
    "exact engines": ("weights of 1", r"^ +and max by .*k3_nats\) > 0\n", ""),
    "few steps": ("ratios of 1", r" > 8\)", ")"),
    "a first batch's faults": (
        "faults of data",
        r"\n +or \(counterweight_doctor.*\n.*offset 15m\)",
        "",
    ),
    "notes": ("faults of data", r'{severity="error"}', ""),
    "reasons long ago": ("skipped batches", r"\n +unless counterweight_step_sk.* 15m", ""),
    "one server of many": (
        "one drifting server of several",
        r"(?<=\n            )unless on \(job, run\) run:.* > 3$",
        "",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_unit_tests_see(
    mistake: str, tool: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    case, pattern, instead = MISTAKES[mistake]
    changed, times = re.subn(pattern, instead, (FOLDER / "rules.yml").read_text(), flags=re.M)
    assert times > 0
    (tmp_path / "rules.yml").write_text(changed)
    head, *cases = re.split(r"(?m)^(?=  - name: )", (FOLDER / "rules_test.yml").read_text())
    (only,) = [text for text in cases if text.startswith(f"  - name: {case}\n")]
    (tmp_path / "rules_test.yml").write_text(head + only)
    done = subprocess.run(
        [tool("promtool"), "test", "rules", "rules_test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "FAILED" in done.stdout + done.stderr
