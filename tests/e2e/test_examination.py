"""The doctor's look at batches that a server corrects: in Prometheus, on the page, within the budget."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from server_process import ServerProcess

pytestmark = pytest.mark.server_only


def batch(length: int) -> dict[str, Any]:
    random = np.random.default_rng(3)
    rollout = -random.exponential(0.5, (64, length)).astype(np.float32)
    drift = random.normal(0, 0.02, rollout.shape).astype(np.float32)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": np.minimum(rollout + drift, 0),
        "response_mask": np.arange(length) < random.integers(20, length, 64)[:, None],
    }


HEALTHY = batch(120)
# The trainer's log-probs lie one token late.
SHIFTED = {**HEALTHY, "old_log_probs": np.roll(HEALTHY["rollout_log_probs"], 1, axis=1)}


def doctor_of(server: ServerProcess, run: str) -> tuple[int, dict[str, int]]:
    """Examined batches of a run, and errors and warnings among its findings."""
    page = server.scrape()
    examined = re.search(rf'doctor_batches_total{{run="{run}"}} (\d+)', page)
    pattern = rf'findings_total{{finding="(\w+)",run="{run}",severity="(?:error|warning)"}} (\d+)'
    findings = {name: int(count) for name, count in re.findall(pattern, page)}
    return int(examined[1]) if examined else 0, findings


def run_on_page(server: ServerProcess, run: str) -> dict[str, Any]:
    url = server.metrics_url.replace("/metrics", "/page.json")
    with urllib.request.urlopen(url, timeout=60) as answer:
        (found,) = [each for each in json.load(answer)["runs"] if each["name"] == run]
    return dict(found)


def test_a_healthy_run_is_examined_seldom(client: cw.Client, server: ServerProcess) -> None:
    for _ in range(67):
        client.correct(method="token_tis", run="healthy", **HEALTHY)
    assert doctor_of(server, "healthy") == (4, {})
    assert "faults" not in run_on_page(server, "healthy")


def test_a_fault_is_counted_and_leaves_with_its_cause(
    client: cw.Client, server: ServerProcess
) -> None:
    for _ in range(5):
        client.correct(method="token_tis", run="shifted", **SHIFTED)
    assert doctor_of(server, "shifted") == (5, {"shifted": 5})
    assert run_on_page(server, "shifted")["faults"] == ["shifted"]
    client.correct(method="token_tis", run="shifted", **HEALTHY)
    assert "faults" not in run_on_page(server, "shifted")
    client.correct(method="token_tis", run="shifted", **HEALTHY)
    assert doctor_of(server, "shifted") == (6, {"shifted": 5})


def causes_of(server: ServerProcess, run: str) -> dict[str, float]:
    pattern = rf'doctor_cause_k3_nats{{cause="(\w+)",run="{run}"}} (\S+)'
    return {cause: float(k3) for cause, k3 in re.findall(pattern, server.scrape())}


@pytest.mark.usefixtures("local_library")
def test_causes_are_those_of_a_diagnosis(client: cw.Client, server: ServerProcess) -> None:
    whole = {**HEALTHY, "current_log_probs": np.minimum(HEALTHY["old_log_probs"] + 0.01, 0)}
    client.correct(method="token_tis", run="causes", **whole)
    read = cw.diagnose(**whole).attribution
    assert read is not None
    causes = {
        "engine_staleness": read.causes.k3_engine_staleness,
        "update": read.causes.k3_update,
        "interaction": read.causes.k3_interaction,
    }
    assert causes_of(server, "causes") == pytest.approx(
        {name: (k3 or 0) / read.tokens for name, k3 in causes.items()}, rel=1e-5
    )
    assert run_on_page(server, "causes")["why"] == read.sentence
    client.correct(method="token_tis", run="causes", **HEALTHY)
    assert list(causes_of(server, "causes")) == ["engine_staleness"]


def test_streams_and_publications_are_not_examined(server: ServerProcess) -> None:
    with cw.Client(server.address, transport="stream") as client:
        client.correct(method="token_tis", run="stream", **SHIFTED)
    # Its tensors are freed as soon as they are computed.
    assert doctor_of(server, "stream") == (0, {})
    with cw.Client("local:", publish=server.address) as client:
        client.correct(method="token_tis", run="local", **SHIFTED)
    assert doctor_of(server, "local") == (0, {})


def test_without_metrics_nothing_is_examined(client: cw.Client, server: ServerProcess) -> None:
    client.correct(method="token_tis", run="silent", metrics=False, **SHIFTED)
    assert doctor_of(server, "silent") == (0, {})


def test_an_examination_changes_no_answer(client: cw.Client) -> None:
    """The first batches of a run are examined, later ones are not."""
    answers = [
        client.correct(method="geo_rs_token_tis", run="answers", **HEALTHY) for _ in range(5)
    ]
    for answer in answers[1:]:
        assert answer.metrics == answers[0].metrics
        np.testing.assert_array_equal(answer.weights, answers[0].weights)


def test_a_server_without_room_for_it_corrects_all_the_same(
    start_server: Callable[..., ServerProcess],
) -> None:
    # Room for the batch and its answer, and not for the 16 MiB of an examination.
    limits = "--max_message_bytes=1000000", "--max_bytes_in_flight=6000000"
    server = start_server(*limits)
    with cw.Client(server.address, transport="unary") as client:
        client.correct(method="token_tis", run="tight", **batch(1024))
    assert doctor_of(server, "tight") == (0, {})
