"""A real Prometheus server scrapes a real Counterweight server."""

from __future__ import annotations

import pathlib
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from prometheus_process import Prometheus
from server_process import ServerProcess, wait_until
from transports import LOSS

pytestmark = pytest.mark.server_only

METHOD = cw.Dialect(
    "verl",
    {
        "rollout_is": "token",
        "rollout_is_threshold": 1.5,
        "rollout_rs": "token_k1",
        "rollout_rs_threshold": 1.5,
    },
)


@pytest.fixture
def server(start_server: Callable[..., ServerProcess]) -> ServerProcess:
    """A server of its own, so that counters start at 0."""
    return start_server()


@pytest.fixture
def client(server: ServerProcess) -> Iterator[cw.Client]:
    with cw.Client(server.address) as connected:
        yield connected


@pytest.fixture
def prometheus(
    server: ServerProcess, tmp_path: pathlib.Path, tool: Callable[[str], str]
) -> Iterator[Prometheus]:
    target = urllib.parse.urlsplit(server.metrics_url).netloc
    running = Prometheus(tool("prometheus"), tmp_path, [target])
    yield running
    running.stop()


def test_drift_reaches_prometheus(client: cw.Client, prometheus: Prometheus) -> None:
    result = client.correct(method=METHOD, run="run-1", **padded_batch())
    client.correct(method=METHOD, run="run-2", **padded_batch(seed=1))
    (kl,) = prometheus.wait_for('counterweight_drift_kl_nats{run="run-1"}')
    assert kl["metric"]["job"] == "counterweight"
    assert float(kl["value"][1]) == pytest.approx(result.metrics["rollout_corr/kl"], rel=1e-6)
    (dropped,) = prometheus.wait_for('counterweight_drift_dropped_tokens_total{run="run-1"}')
    assert float(dropped["value"][1]) == result.rules[0].dropped_tokens > 0
    assert dropped["metric"]["rule"] == result.rules[0].name
    # Queries of a dashboard: a quantile from the histogram, a sum over runs.
    prometheus.wait_for(
        'histogram_quantile(0.9, counterweight_drift_token_log_ratio_nats_bucket{run="run-1"})'
    )
    (batches,) = prometheus.wait_for("sum(counterweight_drift_batches_total) == 2")
    assert float(batches["value"][1]) == 2
    (answered,) = prometheus.wait_for('counterweight_requests_total{method="Correct",code="OK"}')
    assert float(answered["value"][1]) == 2
    (info,) = prometheus.wait_for("counterweight_build_info")
    assert info["metric"]["version"] == client.server_info().version
    prometheus.wait_for("process_resident_memory_bytes > 0")


def test_the_loss_of_the_last_batch_is_the_answers(
    server: ServerProcess, client: cw.Client
) -> None:
    batch = padded_batch()
    result = client.correct(
        method=cw.Preset(
            "token_tis",
            policy_loss=LOSS.policy_loss,
            kl_penalty=cw.KlPenalty(estimator=cw.KlEstimator.K3, coefficient=0.5),
        ),
        run="run-1",
        policy_version=12,
        ref_log_probs=batch["old_log_probs"] - 0.25,
        **batch,
    )
    client.correct(method="token_tis", run="run-1", **padded_batch(seed=1))
    told = {
        "drift_policy_version": 12.0,
        "loss": result.loss,
        "loss_policy": result.metrics["loss/policy"],
        "loss_ppo_kl_nats": result.metrics["loss/ppo_kl"],
        "loss_clip_ratio": result.metrics["loss/clip_fraction"],
        "loss_clip_high_ratio": result.metrics["loss/clip_high_fraction"],
        "loss_clip_low_ratio": result.metrics["loss/clip_low_fraction"],
        "loss_gradient_norm": result.metrics["loss/gradient_norm"],
        "loss_gradient_clipped_ratio": result.metrics["loss/gradient_clipped_share"],
        "loss_gradient_rejected_ratio": result.metrics["loss/gradient_rejected_share"],
        "loss_kl_penalty": result.metrics["loss/kl_penalty"],
        "loss_kl_nats": result.metrics["loss/kl"],
    }
    shown = {name: server.metric(f'counterweight_{name}{{run="run-1"}}') for name in told}
    assert shown == pytest.approx(told, rel=1e-12)


def test_promtool_finds_nothing_to_complain_about(
    server: ServerProcess, client: cw.Client, tool: Callable[[str], str]
) -> None:
    client.correct(method=METHOD, run="run-1", **padded_batch())
    client.correct(method="token_tis", **padded_batch())
    check = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=server.scrape(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


def test_a_retry_counts_once(server: ServerProcess, client: cw.Client) -> None:
    batch = padded_batch()
    tokens = int(batch["response_mask"].sum())

    def counted() -> list[float]:
        return [
            server.metric('counterweight_drift_batches_total{run="run-1"}'),
            server.metric('counterweight_drift_tokens_total{run="run-1"}'),
            server.metric("counterweight_corrected_batches_total"),
            server.metric("counterweight_corrected_tokens_total"),
        ]

    for _ in range(3):
        result = client.correct(method="token_tis", run="run-1", request_id="same", **batch)
        assert result.request_id == "same"
        assert counted() == [1, tokens, 1, tokens]
    client.correct(method="token_tis", run="run-1", **batch)
    assert counted() == [2, 2 * tokens, 2, 2 * tokens]
    client.correct(method="token_tis", run="run-1", **batch)
    assert counted() == [3, 3 * tokens, 3, 3 * tokens]


def test_a_refused_request_publishes_nothing(server: ServerProcess, client: cw.Client) -> None:
    before = server.metric("counterweight_corrected_batches_total")
    with pytest.raises(cw.InvalidRequestError):
        client.correct(method="nothing", run="refused", request_id="again", **padded_batch())
    page = server.scrape()
    assert 'run="refused"' not in page
    assert server.metric("counterweight_corrected_batches_total") == before
    refused = 'counterweight_requests_total{code="INVALID_ARGUMENT",method="Correct"}'
    wait_until(lambda: server.count(refused) == 1)
    # A refused request does not use up its request_id.
    client.correct(method="token_tis", run="refused", request_id="again", **padded_batch())
    assert server.metric("counterweight_corrected_batches_total") == before + 1


def test_no_batch_stops_a_total(server: ServerProcess, client: cw.Client) -> None:
    """A masked logit's log-prob, or a version long gone, counts for no more than a token may."""
    honest = padded_batch()
    shape = honest["response_mask"].shape
    extreme = padded_batch()
    extreme["old_log_probs"][0, 0] = np.finfo(np.float32).min
    extreme["response_mask"][0, 0] = True

    def totals() -> dict[str, float]:
        lines = (line.rpartition(" ") for line in server.scrape().splitlines())
        families = ("counterweight_drift_", "counterweight_loss_", "counterweight_corrected_")
        return {
            name: float(value)
            for name, _, value in lines
            if name.startswith(families) and ("_total" in name or "_sum" in name)
        }

    def send(batch: dict[str, Any], newest: int, sampled: int) -> dict[str, float]:
        before = totals()
        client.correct(
            method=LOSS,
            run="run",
            policy_version=newest,
            policy_versions=np.full(shape, sampled, np.int32),
            **batch,
        )
        return {name: value - before.get(name, 0.0) for name, value in totals().items()}

    alone = send(honest, 5, 4)
    assert len(alone) > 30
    shock = send(extreme, 2**63 - 1, 0)
    tokens = extreme["response_mask"].sum()
    assert abs(shock["counterweight_corrected_token_log_ratio_nats_sum"]) < 20 + tokens
    assert shock['counterweight_drift_staleness_versions_sum{run="run"}'] == 1024 * tokens
    assert send(honest, 5, 4) == pytest.approx(alone, rel=1e-6, abs=1e-9)
