"""Steps that trainers report: by every client, and each silent fault as an alert of a real Prometheus."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl import aio
from counterweight_rl.distributed import Step, step_books
from prometheus_process import Prometheus
from server_process import REPOSITORY, ServerProcess

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("local_library")]

RULES = REPOSITORY / "deploy/prometheus/rules.yml"
METHOD = "geo_rs_token_tis"
WIDE = cw.Preset(METHOD, keep_lower=0.9, keep_upper=1.1)
BATCH = padded_batch(16, 60, seed=5)
DRIFT = {n: BATCH[n] for n in ("rollout_log_probs", "old_log_probs", "response_mask")}
TOKENS = int(DRIFT["response_mask"].sum())


def halves() -> list[dict[str, Any]]:
    return [{n: array[half] for n, array in DRIFT.items()} for half in (slice(8), slice(8, 16))]


def receipts_of(server: ServerProcess, run: str) -> dict[str, float]:
    pattern = rf'step_receipts_total{{run="{run}",state="(\w+)"}} (\d+)'
    found = re.findall(pattern, server.scrape())
    return {state: int(count) for state, count in found if count != "0"}


def test_a_step_reports_what_its_loss_used(client: cw.Client, server: ServerProcess) -> None:
    with Step(client, WIDE, run="used", number=1) as step:
        for micro in halves():
            result = step.add(**micro)
            step.applied(result.weights * result.keep_mask, micro["response_mask"])
    assert step.report == cw.StepReport("used", ())
    assert receipts_of(server, "used") == {"used": 1}
    for entry in ("trained", "corrected"):
        labels = f'entry="{entry}",run="used"'
        assert server.metric(f"counterweight_step_tokens_total{{{labels}}}") == TOKENS


def test_a_loss_of_the_step_uses_its_weights(client: cw.Client) -> None:
    step = Step(client, "token_tis_ppo_clip", run="own", number=1)
    step.add(**BATCH)
    step.reduce()
    step.finish(**BATCH)
    step.close()
    assert step.report is not None
    assert step.report.state == "used"


def test_an_exception_reports_what_was_done(client: cw.Client, server: ServerProcess) -> None:
    with pytest.raises(KeyError), Step(client, WIDE, run="stopped", number=1) as step:
        step.add(**DRIFT)
        step.skipped("out_of_memory", batches=2, tokens=7)
        raise KeyError
    assert receipts_of(server, "stopped") == {"not_applied": 1}
    skipped = 'counterweight_step_skipped_batches_total{reason="out_of_memory",run="stopped"}'
    assert server.metric(skipped) == 2
    trained = 'counterweight_step_tokens_total{entry="trained",run="stopped"}'
    assert server.metric(trained) == TOKENS + 7


def test_a_failed_report_stops_no_training(
    client: cw.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with Step(client, WIDE, run="refused", number=1, policy_version=-1) as step:
        step.skipped("late")
    assert step.report is None
    assert "step 1 was not reported" in caplog.text


def test_nothing_that_is_entered_is_ignored(client: cw.Client) -> None:
    mask = DRIFT["response_mask"]
    with Step(client, WIDE) as unlabelled:
        for enter in (lambda: unlabelled.applied(None, mask), lambda: unlabelled.skipped("late")):
            with pytest.raises(ValueError, match="needs a step with run and number"):
                enter()
    with Step(client, WIDE, run="entered", number=1) as step:
        for reason, numbers, error in (
            ("two words", {}, ValueError),
            (7, {}, TypeError),
            ("late", {"batches": -1}, ValueError),
            ("late", {"tokens": 0.5}, TypeError),
        ):
            with pytest.raises(error):
                step.skipped(reason, **numbers)
        for i in range(8):
            step.skipped(f"reason{i}")
        with pytest.raises(ValueError, match="at most 8 reasons"):
            step.skipped("one_more")
    assert step.report is not None
    for enter in (lambda: step.applied(None, mask), lambda: step.skipped("late")):
        with pytest.raises(ValueError, match="after the step's report"):
            enter()


def test_a_frozen_server_is_waited_for_shortly(
    start_server: Callable[..., ServerProcess],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_books, "REPORT_SECONDS", 0.5)
    server = start_server()
    with cw.Client(server.address) as client:
        step = Step(client, WIDE, run="frozen", number=1)
        step.add(**DRIFT)
        server.freeze()
        try:
            start = time.monotonic()
            with step:
                pass
        finally:
            server.process.send_signal(signal.SIGCONT)
    # The client's own limit is a minute.
    assert time.monotonic() - start < 20
    assert "step 1 was not reported" in caplog.text


def test_every_client_gets_the_same_answer(
    client: cw.Client, server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    issued = cw.applied(np.full((1, 4), 1.5, np.float32), np.ones((1, 4), np.uint8))
    sides = {
        "used": issued,
        "unused": cw.applied(None, np.ones((1, 4), np.uint8)),
        "rounded": cw.applied(np.full((1, 4), 1.503, np.float32), np.ones((1, 4), np.uint8)),
        "replaced": cw.applied(np.full((1, 4), 2, np.float32), np.ones((1, 4), np.uint8)),
    }

    async def ask(target: str, report: dict[str, Any]) -> cw.StepReport:
        async with aio.Client(target) as asynchronous:
            return await asynchronous.report_step(**report)

    for number, (state, applied) in enumerate(sides.items()):
        report: dict[str, Any] = {"run": "all", "tokens": 4, "issued": issued, "applied": applied}
        answer = client.report_step(step=number, **report)
        assert answer.state == state
        assert len(answer.warnings) == (state != "used")
        with cw.Client("local:") as local:
            assert local.report_step(step=number, **report) == answer
        again = {"step": number + 10, **report}
        assert asyncio.run(ask("local:", again)) == answer
        assert asyncio.run(ask(server.address, again)) == answer
    assert receipts_of(server, "all") == dict.fromkeys(sides, 2)


def test_a_local_client_reports_to_the_server_that_it_publishes_to(server: ServerProcess) -> None:
    with (
        cw.Client("local:", publish=server.address) as client,
        Step(client, WIDE, run="published", number=1) as step,
    ):
        step.add(**DRIFT)
        step.applied(None, DRIFT["response_mask"])
    assert step.report is not None
    assert step.report.state == "unused"
    assert receipts_of(server, "published") == {"unused": 1}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"step": "1"}, TypeError, "step must be an int, not str"),
        ({"tokens": -1}, ValueError, "tokens must be from 0 to"),
        ({"num_reports": 0}, ValueError, "num_reports must be from 1 to 65536"),
        ({"issued": 3}, TypeError, "issued must be a Receipt, which counterweight_rl.applied"),
        ({"skipped_batches": {"late": 0.5}}, TypeError, "skipped_batches['late'] must be an int"),
        ({"run": "two words"}, cw.InvalidRequestError, "run: must match"),
    ],
)
def test_errors_name_the_argument(
    client: cw.Client, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as refused:
        client.report_step(**{"run": "wrong", "step": 1, "tokens": 1, **arguments})
    assert text in str(refused.value)


def weighted(client: cw.Client, run: str, number: int, weights: str) -> None:
    with Step(client, WIDE, run=run, number=number) as step:
        for i, micro in enumerate(halves()):
            if weights == "half" and i:
                tokens = int(micro["response_mask"].sum())
                step.skipped("count_mismatch", tokens=tokens)
                continue
            result = step.add(**micro)
            if weights in ("used", "half"):
                step.applied(result.weights, result.keep_mask)
            elif weights == "unused":
                step.applied(None, micro["response_mask"])
            elif weights == "shifted":
                step.applied(np.roll(result.weights, 1, 1), result.keep_mask)


def without_correction(client: cw.Client, run: str, number: int, reason: str | None) -> None:
    skipped = {reason: 2} if reason else None
    client.report_step(run=run, step=number, tokens=TOKENS, skipped_batches=skipped)


def of_equal_log_probs(client: cw.Client, run: str, number: int, **equal: Any) -> None:
    with Step(client, WIDE, run=run, number=number) as step:
        result = step.add(**{**DRIFT, **equal})
        step.applied(result.weights, result.keep_mask)


def of_ratio_one(client: cw.Client, run: str, number: int) -> None:
    step = Step(client, "ppo_clip", run=run, number=number, loss_metrics=True)
    batch = {**BATCH, "current_log_probs": BATCH["old_log_probs"]}
    del batch["rollout_log_probs"]
    step.add(**batch)
    step.reduce()
    step.finish(**batch)
    step.close()


# By run: what its trainer does in each step, and the alerts that its faults raise. The faults are those of
# nine bug reports: losses that ignore the weights in five systems, batches without rollout log-probs, whole
# and half steps that are skipped, and current log-probs that are the old ones in two.
FAULTS: dict[str, tuple[Callable[[cw.Client, str, int], None], set[str]]] = {
    "vanilla_actor": (lambda c, r, n: weighted(c, r, n, "unused"), {"WeightsUnused"}),
    "shifted_weights": (lambda c, r, n: weighted(c, r, n, "shifted"), {"WeightsUnused"}),
    "no_rollout_log_probs": (
        lambda c, r, n: without_correction(c, r, n, "no_rollout_log_probs"),
        {"TrainsWithoutCorrecting", "BatchesSkipped"},
    ),
    "skipped_each_step": (
        lambda c, r, n: without_correction(c, r, n, None),
        {"TrainsWithoutCorrecting"},
    ),
    "skipped_every_second": (
        lambda c, r, n: weighted(c, r, n, "half"),
        {"CountsDiffer", "BatchesSkipped"},
    ),
    "ratio_always_one": (of_ratio_one, {"RatioAlwaysOne"}),
    "healthy": (lambda c, r, n: weighted(c, r, n, "used"), set()),
    "exact_engine": (
        lambda c, r, n: of_equal_log_probs(c, r, n, rollout_log_probs=DRIFT["old_log_probs"]),
        set(),
    ),
}
# RatioAlwaysOne waits for more than eight steps, which two epochs also have.
STEPS = 11
SLOW = {"ratio_always_one"}


def test_each_fault_is_named_and_healthy_runs_are_not(
    client: cw.Client,
    server: ServerProcess,
    tool: Callable[[str], str],
    tmp_path: pathlib.Path,
) -> None:
    rules = tmp_path / "rules.yml"
    # Their waits are promtool's to test.
    rules.write_text(re.sub(r"\n +for: \w+\n", "\n        for: 0s\n", RULES.read_text()))
    target = re.sub(r"http://(.*)/metrics", r"\1", server.metrics_url)
    prometheus = Prometheus(tool("prometheus"), tmp_path, [target], rules=[rules])
    first_seen: dict[tuple[str, str], int] = {}

    def firing() -> set[tuple[str, str]]:
        found = prometheus.query('ALERTS{alertstate="firing",run!=""}')
        names = (one["metric"] for one in found)
        return {(each["run"], each["alertname"].removeprefix("Counterweight")) for each in names}

    try:
        for number in range(1, STEPS + 1):
            for run, (act, _) in FAULTS.items():
                act(client, run, number)
            seen = f'counterweight_step_steps_total{{run="exact_engine"}} >= {number}'
            # Alerts are evaluated after the samples they read.
            prometheus.wait_for(f"count_over_time(({seen})[1m:100ms]) >= 5")
            for fault in firing():
                first_seen.setdefault(fault, number)
    finally:
        prometheus.stop()
    expected = {(run, name) for run, (_, names) in FAULTS.items() for name in names}
    steps = {fault: number for fault, number in first_seen.items() if fault[0] in FAULTS}
    about_steps = {
        (run, name): number
        for (run, name), number in steps.items()
        if name in {each for _, names in FAULTS.values() for each in names} | {"AllWeightsOne"}
    }
    assert about_steps.keys() == expected
    # An increase needs two samples, so that the second step is the first that can show.
    late = {f: n for f, n in about_steps.items() if n > 3 and f[0] not in SLOW}
    assert not late
