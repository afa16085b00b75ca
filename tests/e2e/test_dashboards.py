"""Sends each query of each panel to a real Prometheus that scrapes a real server under load."""

from __future__ import annotations

import pathlib
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from certificates import Authority
from dashboard_files import NAMES, Question, questions, read_dashboard
from prometheus_process import Prometheus
from server_process import REPOSITORY, ServerProcess
from transports import LARGE, LOSS

pytestmark = pytest.mark.server_only

RULES = REPOSITORY / "deploy/prometheus/rules.yml"
METHOD = cw.Dialect(
    "verl",
    {
        "rollout_is": "token",
        "rollout_is_threshold": 1.5,
        "rollout_rs": "token_k1",
        "rollout_rs_threshold": 1.5,
    },
)
LOSS_WITH_KL = cw.Dialect(
    "verl",
    {
        "rollout_is": "token",
        "rollout_is_threshold": 2.0,
        "policy_loss": {"loss_mode": "vanilla", "use_kl_loss": True, "kl_loss_coef": 0.01},
    },
)
AUDITED = ("rollout_log_probs", "old_log_probs", "response_mask")
# The whole test happens within this window.
WINDOW = "5m"


@dataclass(frozen=True)
class Fed:
    """A Prometheus with a server that has done work, and an answer of the server to run "verl"."""

    prometheus: Prometheus
    answer: cw.Result[Any]
    tokens: int


def with_nan() -> dict[str, Any]:
    """One number at an unmasked position is NaN."""
    batch = padded_batch(seed=7)
    batch["old_log_probs"][0, 0] = np.nan
    return batch


def work(server: ServerProcess) -> cw.Result[Any]:
    """Sends unary calls, streams and shared memory; gets answers, refusals and errors."""
    with cw.Client(server.address) as client:
        batch = padded_batch()
        versions = np.arange(batch["response_mask"].size, dtype=np.int32) % 12
        answer = client.correct(
            method=METHOD,
            run="verl",
            policy_version=11,
            policy_versions=versions.reshape(batch["response_mask"].shape),
            **batch,
        )
        client.correct(method="token_tis", **padded_batch(seed=1))
        audited = {name: batch[name] for name in AUDITED}
        client.diagnose(run="verl", audit=cw.Audit(), **audited)
        batch = padded_batch()
        reference = batch["old_log_probs"] - np.float32(0.25)
        client.correct(method=LOSS_WITH_KL, run="kl", ref_log_probs=reference, **batch)
        client.correct(method=LOSS, run="memory", **LARGE["wide"])
        client.correct(method="token_tis", run="nan", non_finite="drop", **with_nan())
        with pytest.raises(cw.InvalidRequestError):
            client.correct(method="token_tis", run="nan", **with_nan())
        with pytest.raises(cw.InvalidRequestError):
            client.correct(method="nothing", **padded_batch())
    with cw.Client(server.address, transport="stream") as client:
        client.correct(method=LOSS, run="stream", **LARGE["wide"])
    return answer


@pytest.fixture(scope="module")
def fed(
    start_server: Callable[..., ServerProcess],
    tool: Callable[[str], str],
    folder: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fed]:
    # Over a Unix socket it stays plaintext; the certificate is for its metrics.
    certificate = Authority(tmp_path_factory.mktemp("certificates"), "authority").sign("server")
    server = start_server(
        f"--shared_memory_socket={folder}/dashboards-memory",
        *certificate.flags(),
        "--metrics_tls=false",
        listen=f"unix:{folder}/dashboards",
    )
    # Prometheus counts the growth of a counter after its first scrape, so these counters must exist
    # before it.
    work(server)
    prometheus = Prometheus(
        tool("prometheus"),
        tmp_path_factory.mktemp("prometheus"),
        [urllib.parse.urlsplit(server.metrics_url).netloc],
        rules=[RULES],
    )
    try:
        prometheus.wait_for('counterweight_drift_batches_total{run="stream"} == 1')
        answer = work(server)
        prometheus.wait_for('counterweight_drift_batches_total{run="stream"} == 2')
        yield Fed(prometheus, answer, int(padded_batch()["response_mask"].sum()))
    finally:
        prometheus.stop()


@pytest.mark.parametrize("question", [q for name in NAMES for q in questions(name)], ids=str)
def test_every_query_has_data(fed: Fed, question: Question) -> None:
    found = fed.prometheus.wait_for(question.expression(WINDOW))
    # A legend with a label that the series lack gives all of them one name.
    names = [question.name(one["metric"]) for one in found]
    if question.legend != "__auto":
        assert len(set(names)) == len(names), names


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_has_values(fed: Fed, name: str) -> None:
    variables = read_dashboard(name)["templating"]["list"]
    asked = [one for one in variables if one["type"] == "query"]
    assert asked
    for variable in asked:
        inside = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        assert inside is not None
        series = inside[1].replace("$job", ".*")
        values = fed.prometheus.ask(f"label/{inside[2]}/values", **{"match[]": series})
        assert values, variable["name"]


def value(fed: Fed, panel: str, **labels: str) -> float:
    """Returns the number of a panel's first query."""
    asked = next(q for name in NAMES for q in questions(name) if q.panel["title"] == panel)
    (found,) = [
        one
        for one in fed.prometheus.wait_for(asked.expression(WINDOW))
        if labels.items() <= one["metric"].items()
    ]
    return float(found["value"][1])


def test_panels_show_what_the_server_answered(fed: Fed) -> None:
    k3 = fed.answer.metrics["rollout_corr/k3_kl"]
    assert value(fed, "KL divergence, k3", run="verl") == pytest.approx(k3, rel=1e-6)
    # Old over rollout, as the metric.
    cause = value(fed, "KL divergence by cause", run="verl", cause="engine_staleness")
    assert cause == pytest.approx(k3, rel=1e-5)
    rule = fed.answer.rules[0]
    assert rule.dropped_tokens > 0
    share = value(fed, "Tokens dropped, by rule", run="verl", rule=rule.name)
    assert share == pytest.approx(rule.dropped_tokens / fed.tokens)
    assert fed.answer.staleness is not None
    for bucket in fed.answer.staleness.buckets:
        labels = {"run": "verl", "staleness": bucket.label}
        shown = value(fed, "KL divergence by staleness", **labels)
        assert shown == pytest.approx(bucket.k3, rel=1e-6)
        share = value(fed, "Tokens by staleness", **labels)
        assert share == pytest.approx(bucket.tokens / fed.tokens)
    # There is only one level, so it is the calm one.
    assert value(fed, "Eight steps as a multiple of the calm level", run="verl") == pytest.approx(1)
    # 2 of the 8 batches.
    lost = value(fed, "Share of batches that were not corrected")
    assert lost == pytest.approx(2 / 8, rel=0.05)
    assert value(fed, "Policy version", run="verl") == 11
    in_thirty_days = time.time() + 30 * 86400
    assert value(fed, "Certificate ends") / 1000 == pytest.approx(in_thirty_days, abs=3600)


def test_an_alert_fires_in_a_real_prometheus(fed: Fed) -> None:
    (alert,) = fed.prometheus.wait_for('ALERTS{alertname="CounterweightNonFinite"}')
    assert alert["metric"]["alertstate"] == "firing"
    assert (alert["metric"]["run"], alert["metric"]["severity"]) == ("nan", "warning")
