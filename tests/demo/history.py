"""Simulates an hour of training in Prometheus with the demo's data.

A real server corrects the rollouts; its metrics page after each batch is stored as if Prometheus
had scraped it every 15 s, and promtool makes blocks of that, which a real Prometheus serves.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import counterweight_rl as cw
import numpy as np
from prometheus_process import Prometheus, find_tool
from rollouts import Step, read_steps
from server_process import REPOSITORY, ServerProcess

RULES = REPOSITORY / "deploy/prometheus/rules.yml"
SCRAPE_SECONDS = 15
SCRAPES_PER_MINUTE = 4
# Each minute has one batch of each run, a part of the sequences of a step.
MINUTES = 63
PARTS = 7
# The trained policy's in the first minute: the largest staleness of the data.
FIRST_VERSION = 4
# 2026-11-23, 09:00 UTC.
START = 1795424400
INSTANCE = 'job="counterweight",instance="localhost:9464"'
LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


def many(batch: dict[str, Any], times: int) -> dict[str, Any]:
    return {name: np.tile(array, times) for name, array in batch.items()}


def part(step: Step, index: int, *, with_loss: bool) -> dict[str, Any]:
    """Every seventh sequence of a step, from the index-th."""
    lengths = step.batch["sequence_lengths"].astype(np.int64)
    taken = np.arange(len(lengths)) % PARTS == index
    tokens = np.repeat(taken, lengths)
    versions = {"policy_versions": step.policy_versions}
    return {
        name: array[taken] if name == "sequence_lengths" else array[tokens]
        for name, array in (step.batch | versions | (step.loss_inputs if with_loss else {})).items()
    }


@dataclass(frozen=True)
class Run:
    """A run of an hour: its method, and its steps of the demo at an even pace."""

    name: str
    method: cw.Method
    steps: Sequence[int]
    has_loss: bool = False

    def batch(self, minute: int, data: Sequence[Step]) -> dict[str, Any]:
        step = data[self.steps[minute * len(self.steps) // MINUTES]]
        batch = part(step, minute % PARTS, with_loss=self.has_loss)
        version = FIRST_VERSION + minute
        batch["policy_versions"] += version - step.trainer_version
        return batch | {"policy_version": version}


RUNS = (
    # The weights reach the engine every step.
    Run("in-step", "token_tis", [0, 0, 1, 0, 0, 1, 0]),
    # The engine falls behind, and catches up.
    Run(
        "asynchronous",
        cw.Preset(
            "geo_rs_token_tis",
            keep_lower=0.95,
            keep_upper=1.05,
            policy_loss=cw.PolicyLoss(
                surrogate=cw.Surrogate.PPO_CLIP,
                aggregation=cw.LossAggregation.TOKEN_MEAN,
                denominator=cw.LossDenominator.ORIGINAL,
                clip_low=0.2,
                clip_high=0.2,
            ),
            kl_penalty=cw.KlPenalty(estimator=cw.KlEstimator.K3, coefficient=0.01),
        ),
        [0, 0, 1, 2, 3, 4, 6, 5, 2, 1, 0],
        has_loss=True,
    ),
    # The engine is changed to smaller integers.
    Run(
        "quantized",
        cw.Dialect(
            "verl",
            {
                "rollout_is": "token",
                "rollout_is_threshold": 2.0,
                "rollout_rs": "token_k1",
                "rollout_rs_threshold": "0.5_2.0",
            },
        ),
        [1, 2, 1, 7, 7, 8, 8],
    ),
)


def samples(page: str, time: int) -> Iterator[str]:
    """The page's lines as OpenMetrics with a time."""
    for line in page.splitlines():
        found = LINE.match(line)
        if found:
            labels = f"{INSTANCE},{found[2]}" if found[2] else INSTANCE
            yield f"{found[1]}{{{labels}}} {found[3]} {time}\n"


def train(server: ServerProcess, file: pathlib.Path) -> int:
    """Runs all of RUNS, writes what Prometheus would have scraped, and returns the last scrape's time."""
    data = read_steps()
    time = START - SCRAPE_SECONDS
    with (
        file.open("w") as out,
        cw.Client(server.address) as client,
        cw.Client(server.address, transport="stream") as streaming,
    ):

        def scrape() -> None:
            nonlocal time
            time += SCRAPE_SECONDS
            out.writelines(samples(server.scrape(), time))

        scrape()
        for minute in range(MINUTES):
            for run in RUNS:
                batch = run.batch(minute, data)
                client.correct(**batch, method=run.method, run=run.name)
            scrape()
            # Another trainer, with large batches that publish no drift.
            large = many(data[minute % len(data)].batch, 1 + 20 * (minute % 10 + 1))
            waiting = [
                one.submit(**large, method="token_tis", metrics=False)
                for one in (client, streaming)
            ]
            scrape()
            for one in waiting:
                one.result()
            if minute % 9 == 4:
                with contextlib.suppress(cw.InvalidRequestError):
                    client.correct(**RUNS[0].batch(minute, data), method="mistyped")
            for _ in range(SCRAPES_PER_MINUTE - 2):
                scrape()
        out.write("# EOF\n")
    return time


def tool(name: str) -> str:
    found = find_tool(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: .ci/setup")
    return found


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        [tool("promtool"), "tsdb", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[Prometheus]:
    prometheus = Prometheus(
        tool("prometheus"), folder, flags=["--storage.tsdb.retention.time=100y"]
    )
    try:
        # Its API is ready later than its port.
        prometheus.wait_for("vector(1)")
        yield prometheus
    finally:
        prometheus.stop()


@contextlib.contextmanager
def serve_history(folder: pathlib.Path, file: pathlib.Path, end: int) -> Iterator[Prometheus]:
    """A Prometheus that has the file's samples, and what the rules record of them."""
    data = str(folder / "data")
    promtool("create-blocks-from", "openmetrics", "--quiet", str(file), data)
    # A rule that reads another rule's records finds them only in the second pass.
    for _ in range(2):
        with running(folder) as prometheus:
            promtool(
                "create-blocks-from",
                "rules",
                f"--start={START}",
                f"--end={end}",
                f"--eval-interval={SCRAPE_SECONDS}s",
                f"--url={prometheus.url}",
                f"--output-dir={data}",
                str(RULES),
            )
    with running(folder) as prometheus:
        yield prometheus
