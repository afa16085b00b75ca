"""Several servers of one run: what two real servers show in a real Prometheus, and the rules for many."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from dashboard_files import questions
from prometheus_process import Prometheus
from server_process import REPOSITORY, ServerProcess, wait_until

pytestmark = pytest.mark.server_only

RULES = REPOSITORY / "deploy/prometheus/rules.yml"
ROUNDS = 5
K3 = "run:counterweight_drift_k3_nats:avg"
# No token's ratio is so high.
NOTHING_KEPT = cw.CorrectionConfig(
    rules=[
        cw.RejectionRule(
            ratio_source=cw.RatioSource.OLD_ROLLOUT,
            estimator=cw.Estimator.RATIO,
            aggregation=cw.Aggregation.TOKEN,
            lower=1e6,
        )
    ]
)


def batch(rows: int, spread: float) -> dict[str, Any]:
    random = np.random.default_rng(rows)
    rollout = -random.exponential(size=(rows, 100)).astype(np.float32)
    drift = (spread * random.normal(size=rollout.shape)).astype(np.float32)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": rollout + drift,
        "response_mask": np.ones(rollout.shape, bool),
    }


@dataclass(frozen=True)
class Two:
    servers: tuple[ServerProcess, ServerProcess]
    clients: tuple[cw.Client, cw.Client]
    prometheus: Prometheus

    def seen(self, server: int, run: str, batches: int) -> None:
        """Waits until Prometheus has so many batches of the run's from the server."""
        target = urllib.parse.urlsplit(self.servers[server].metrics_url).netloc
        labels = f'run="{run}",instance="{target}"'
        self.prometheus.wait_for(f"counterweight_drift_batches_total{{{labels}}} == {batches}")

    def is_near(self, expression: str, truth: float) -> None:
        """Waits until the expression is within 5 %: rate() extrapolates from few scrapes."""
        self.prometheus.wait_for(f"abs(({expression}) / {truth!r} - 1) < 0.05")


@pytest.fixture(scope="module")
def two(
    start_server: Callable[..., ServerProcess],
    tool: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Two]:
    servers = start_server("--drift_gauge_window=1"), start_server("--drift_gauge_window=1")
    prometheus = Prometheus(
        tool("prometheus"),
        tmp_path_factory.mktemp("prometheus"),
        [urllib.parse.urlsplit(server.metrics_url).netloc for server in servers],
        rules=[RULES],
    )
    try:
        with cw.Client(servers[0].address) as first, cw.Client(servers[1].address) as second:
            yield Two(servers, (first, second), prometheus)
    finally:
        prometheus.stop()


def panel(title: str, run: str) -> str:
    """The first query of a panel of the drift dashboard, of one run."""
    (query,) = [q for q in questions("drift") if q.panel["title"] == title and q.letter == "A"]
    return query.expression("5m").replace('run=~".*"', f'run="{run}"')


def test_a_server_that_the_run_left_is_silent(two: Two) -> None:
    run = "left"
    two.clients[0].correct(method="token_tis", run=run, **batch(64, 0.02))
    two.seen(0, run, 1)
    for sent in range(1, ROUNDS + 1):
        told = two.clients[1].correct(method=NOTHING_KEPT, run=run, **batch(64, 0.3)).metrics
        two.seen(1, run, sent)
    assert told["kept_token_fraction"] == 0
    two.is_near(f'{K3}{{run="{run}"}}', told["k3"])
    two.is_near(panel("KL divergence, k3", run), told["k3"])
    two.is_near(panel("KL divergence, k1", run), told["kl"])
    two.prometheus.wait_for(f"{panel('Tokens kept', run)} == 0")
    (alert,) = two.prometheus.wait_for(
        f'ALERTS{{alertname="CounterweightEverythingDropped",run="{run}"}}'
    )
    assert alert["metric"]["severity"] == "critical"


def test_uneven_batches_count_by_their_tokens(two: Two) -> None:
    run = "uneven"
    large, small = batch(64, 0.3), batch(1, 0.02)
    told: list[dict[str, float]] = []
    for sent in range(1, ROUNDS + 1):
        told = [
            client.correct(method="token_tis", run=run, **arrays).metrics
            for client, arrays in zip(two.clients, (large, small), strict=True)
        ]
        two.seen(0, run, sent)
        two.seen(1, run, sent)

    def mean(name: str) -> float:
        return float(sum(m[name] * m["tokens"] for m in told) / sum(m["tokens"] for m in told))

    two.is_near(f'{K3}{{run="{run}"}}', mean("k3"))
    two.is_near(panel("KL divergence, k3", run), mean("k3"))
    two.is_near(panel("Weight: mean and largest", run), mean("weight_mean"))
    two.is_near(panel("chi2 by token", run), mean("chi2_token"))
    squares = [m["weight_mean"] ** 2 / m["effective_sample_size"] * m["tokens"] for m in told]
    together = mean("weight_mean") ** 2 * sum(m["tokens"] for m in told) / sum(squares)
    two.is_near(f'run:counterweight_drift_effective_sample_size_ratio:avg{{run="{run}"}}', together)
    two.is_near(panel("Effective sample size", run), together)


def test_gauges_leave_and_return_and_counters_stay(two: Two) -> None:
    run, (server, _) = "paused", two.servers
    gauge, counter = "counterweight_drift_k3_nats", "counterweight_drift_tokens_total"
    first = two.clients[0].correct(method="token_tis", run=run, **batch(4, 0.1)).metrics
    wait_until(lambda: f'{gauge}{{run="{run}"}}' not in server.scrape())
    gauges = [
        line.split()[2]
        for line in server.scrape().splitlines()
        if line.startswith("# TYPE counterweight_drift_") and line.endswith(" gauge")
    ]
    page = server.scrape()
    shown = [name for name in gauges if re.search(rf'^{name}{{.*run="{run}"', page, re.M)]
    assert shown == []
    assert server.metric(f'{counter}{{run="{run}"}}') == first["tokens"]
    # A slow machine may need more than a window between the answer and the scrape.
    for sent in range(2, 20):
        again = two.clients[0].correct(method="token_tis", run=run, **batch(4, 0.1)).metrics
        assert server.metric(f'{counter}{{run="{run}"}}') == sent * again["tokens"]
        if f'{gauge}{{run="{run}"}}' in server.scrape():
            break
    else:
        pytest.fail("the gauges of a run that continues do not return")


SERVERS = (1, 2, 128)


@pytest.mark.parametrize("count", SERVERS)
def test_the_rules_hold_for_any_number_of_servers(
    count: int, tool: Callable[[str], str], tmp_path: pathlib.Path
) -> None:
    """Server i has 2^(i mod 8) tokens a minute, with a k3 of 0.5 on server 0 and 0.25 elsewhere."""
    tokens = [2 ** (i % 8) for i in range(count)]
    k3 = [0.5 if i == 0 else 0.25 for i in range(count)]
    series = []
    for i in range(count):
        labels = f'{{job="cw",instance="{i}",run="r"}}'
        for name, each in (("tokens", 1.0), ("k3_sum_nats", k3[i]), ("kept_tokens", 0.5)):
            series.append(
                {
                    "series": f"counterweight_drift_{name}_total{labels}",
                    "values": f"0+{each * tokens[i]}x60",
                }
            )
        # A gauge of a last batch is no part of a mean.
        series.append({"series": f"counterweight_drift_k3_nats{labels}", "values": "9x60"})
    # A server that the run left after one batch.
    gone = '{job="cw",instance="gone",run="r"}'
    for name, value in (("tokens_total", 1e6), ("k3_sum_nats_total", 1e6), ("k3_nats", 1)):
        series.append({"series": f"counterweight_drift_{name}{gone}", "values": f"{value}x60"})

    def sample(name: str, value: float) -> dict[str, Any]:
        # promtool compares numbers exactly.
        return {
            "expr": f"round({name}, {2**-20!r})",
            "eval_time": "50m",
            "exp_samples": [
                {"labels": '{job="cw",run="r"}', "value": round(value * 2**20) / 2**20}
            ],
        }

    mean = sum(a * b for a, b in zip(tokens, k3, strict=True)) / sum(tokens)
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    sample(K3, mean),
                    sample("run:counterweight_drift_kept_token_ratio:avg", 0.5),
                ],
            }
        ],
    }
    # JSON is YAML.
    (tmp_path / "test.yml").write_text(json.dumps(test))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
