"""Batches that name their optimizer step: gauges and page show the step, however it was cut."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import grpc
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl.distributed import Step
from counterweight_rl.local.connection_sync import LocalConnection
from counterweight_rl.local.target import read_target
from counterweight_rl.transport.channel import SERVICE
from server_process import ServerProcess, wait_until
from test_staleness_over_the_wire import TRAINED, stale_batch

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("local_library")]

METHOD = "geo_rs_token_tis_ppo_clip"
ROWS = 64
BATCH = padded_batch(ROWS, 120, seed=21)
COUNTS = cw.GlobalCounts(num_tokens=int(BATCH["response_mask"].sum()))


def parts_of(count: int, batch: dict[str, Any] = BATCH) -> list[dict[str, Any]]:
    rows = np.random.default_rng(count).permutation(len(batch["response_mask"]))
    return [{n: array[part] for n, array in batch.items()} for part in np.array_split(rows, count)]


def gauges(server: ServerProcess, run: str) -> dict[str, str]:
    """The text of each gauge of a run, without how many parts there were."""
    families = ("counterweight_drift_", "counterweight_loss")
    found = {}
    for line in server.scrape().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(families) and f'run="{run}"' in name and "_total" not in name:
            found[name.replace(run, "RUN")] = value
    skipped = ("_bucket", "_sum", "_count", "step_parts")
    return {n: v for n, v in found.items() if not n.partition("{")[0].endswith(skipped)}


def gauge(server: ServerProcess, run: str, name: str) -> float:
    return float(gauges(server, run)[f'counterweight_{name}{{run="RUN"}}'])


def page(server: ServerProcess, run: str) -> dict[str, Any]:
    url = server.metrics_url.replace("/metrics", f"/page.json?run={run}")
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)["run"]
    return found


def test_a_step_has_the_same_gauges_however_it_is_cut(
    client: cw.Client, server: ServerProcess
) -> None:
    settings = {"method": METHOD, "global_counts": COUNTS, "policy_version": 3}
    for count in (1, 8, 64):
        for part in parts_of(count):
            client.correct(**part, **settings, run=f"parts-{count}", step=5)
    whole = gauges(server, "parts-1")
    assert len(whole) > 20
    assert gauges(server, "parts-8") == whole
    assert gauges(server, "parts-64") == whole
    assert server.metric('counterweight_drift_step_parts{run="parts-64"}') == 64
    assert gauge(server, "parts-64", "drift_step") == 5
    assert gauge(server, "parts-64", "drift_step_tokens") == COUNTS.num_tokens
    alone = client.correct(**BATCH, **settings, run="alone")
    assert gauge(server, "alone", "drift_k3_nats") == gauge(server, "parts-8", "drift_k3_nats")
    ess = alone.metrics["effective_sample_size"]
    assert gauge(server, "parts-64", "drift_effective_sample_size_ratio") == ess
    assert gauge(server, "parts-64", "loss") == alone.loss
    # The page has one point, as of one batch.
    for count in (8, 64):
        assert page(server, f"parts-{count}")["gauges"] == {
            **page(server, "parts-1")["gauges"],
            "counterweight_drift_step_parts": [count],
        }
        assert page(server, f"parts-{count}")["histogram"] == page(server, "parts-1")["histogram"]


def test_staleness_of_a_step_is_merged(client: cw.Client, server: ServerProcess) -> None:
    batch = stale_batch(16, 200)
    for count in (1, 5):
        for part in parts_of(count, batch):
            client.correct(
                **part, method="token_tis", run=f"stale-{count}", step=1, policy_version=TRAINED
            )
    assert gauges(server, "stale-5") == gauges(server, "stale-1")


def test_published_parts_and_steps_are_the_same(client: cw.Client, server: ServerProcess) -> None:
    settings = {"method": METHOD, "global_counts": COUNTS}
    client.correct(**BATCH, **settings, run="corrected", step=2)
    with cw.Client("local:", publish=server.address) as local:
        for part in parts_of(6):
            local.correct(**part, **settings, run="published", step=2)
        step = Step(local, METHOD, loss_metrics=True, run="merged", number=2)
        for part in parts_of(6):
            step.add(**part)
        step.reduce()
        for part in parts_of(6):
            step.finish(**part)
        step.close()
    wait_until(lambda: server.count('counterweight_drift_batches_total{run="merged"}') == 1)
    assert local.publish_dropped == 0
    assert gauges(server, "published") == gauges(server, "corrected")
    assert gauges(server, "merged") == gauges(server, "corrected")
    for run in ("published", "merged"):
        assert server.metric(f'counterweight_drift_step_parts{{run="{run}"}}') == 6
        tokens = server.metric(f'counterweight_drift_tokens_total{{run="{run}"}}')
        assert tokens == COUNTS.num_tokens


def test_a_step_without_loss_metrics_is_published_once(
    server: ServerProcess,
) -> None:
    with cw.Client("local:", publish=server.address) as local:
        step = Step(local, METHOD, run="lean", number=7)
        for part in parts_of(3):
            step.add(**part)
        step.reduce()
        for part in parts_of(3):
            step.finish(**part)
        step.close()
    wait_until(lambda: server.count('counterweight_drift_batches_total{run="lean"}') == 1)
    assert gauge(server, "lean", "drift_step") == 7
    assert 'counterweight_loss{run="RUN"}' not in gauges(server, "lean")


def test_the_newest_step_is_shown(client: cw.Client, server: ServerProcess) -> None:
    first, second, third = parts_of(3)

    def k3_after(part: dict[str, Any], step: int) -> float:
        client.correct(**part, method="token_tis", run="order", step=step)
        return gauge(server, "order", "drift_k3_nats")

    def k3_of(*parts: dict[str, Any]) -> Any:
        rows = {name: np.concatenate([part[name] for part in parts]) for name in first}
        # Prometheus' text has 16 digits.
        return pytest.approx(client.correct(**rows, method="token_tis").metrics["k3"], rel=1e-15)

    assert k3_after(first, 10) == k3_of(first)
    assert k3_after(second, 12) == k3_of(second)
    # A late part of the step before moves its point on the page, and no gauge.
    assert k3_after(third, 10) == k3_of(second)
    points = page(server, "order")["gauges"]
    assert points["counterweight_drift_k3_nats"] == [k3_of(first, third), k3_of(second)]
    assert points["counterweight_drift_step"] == [10, 12]
    # A batch of step 9 is counted alone: the ring has room for two steps.
    assert k3_after(third, 9) == k3_of(second)
    assert page(server, "order")["gauges"]["counterweight_drift_step"] == [10, 12]
    assert server.count('counterweight_drift_batches_total{run="order"}') == 4
    assert k3_after(first, 12) == k3_of(second, first)


def test_losses_by_their_own_counts_are_the_last_parts(
    client: cw.Client, server: ServerProcess
) -> None:
    last = None
    for part in parts_of(4):
        last = client.correct(**part, method=METHOD, run="own", step=1)
    assert last is not None
    assert gauge(server, "own", "loss") == last.loss
    whole = client.correct(**BATCH, method=METHOD)
    assert gauge(server, "own", "drift_k3_nats") == whole.metrics["k3"]


def test_two_methods_of_a_step_do_not_mix(client: cw.Client, server: ServerProcess) -> None:
    for part in parts_of(3):
        client.correct(**part, method="token_tis", run="two", step=1)
        client.correct(**part, method="seq_tis", run="two", step=1)
    whole = client.correct(**BATCH, method="seq_tis")
    assert gauge(server, "two", "drift_weight_max") == whole.metrics["weight_max"]
    assert server.metric('counterweight_drift_step_parts{run="two"}') == 3


def test_what_cannot_be_published_is_refused(server: ServerProcess) -> None:
    batch = parts_of(1)[0]
    with cw.Client("local:", publish=server.address) as local:
        with pytest.raises(ValueError, match="number is required"):
            Step(local, METHOD, run="unnumbered")
        bare = local.correct(**batch, method="token_tis", partial_sums=True, metrics=False).sums
        assert bare is not None
        with pytest.raises(cw.InvalidRequestError, match="parts: has no drift to publish"):
            local.metrics_of(bare, "token_tis", run="bare", step=1)
    assert local.publish_dropped == 0
    assert 'run="bare"' not in server.scrape()


def test_labels_of_sums_need_a_client_that_publishes(client: cw.Client) -> None:
    sums = client.correct(**BATCH, method="token_tis", partial_sums=True).sums
    assert sums is not None
    with pytest.raises(ValueError, match="run, step: sums are published under labels by a client"):
        client.metrics_of(sums, "token_tis", run="a", step=1)
    with pytest.raises(cw.InvalidRequestError, match="step"):
        client.correct(**BATCH, method="token_tis", step=-1)


class Captured:
    """A publisher that keeps the messages."""

    dropped = 0

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def put(self, message: bytes) -> None:
        self.messages.append(message)

    def drop(self) -> None:
        raise AssertionError

    def close(self) -> None:
        """Sends nothing."""


def publication() -> pb.PublishRequest:
    target = read_target("local:")
    assert target is not None
    captured = Captured()
    connection = LocalConnection(target, None, captured)
    connection.correct({**BATCH, "method": METHOD, "run": "forged", "step": 4})
    (message,) = captured.messages
    return pb.PublishRequest.FromString(message)


def publish(server: ServerProcess, request: pb.PublishRequest) -> tuple[str, str]:
    with grpc.insecure_channel(server.address) as channel:
        send = channel.unary_unary(f"{SERVICE}Publish", response_deserializer=None)
        try:
            send(request.SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            return error.code().name, error.details()
    return "OK", ""


def test_parts_of_other_versions_are_taken(client: cw.Client, server: ServerProcess) -> None:
    """A library that did not measure kept weights yet, and one that measures more."""
    client.correct(**BATCH, method=METHOD, run="same", step=4)
    for run in "older", "newer":
        request = publication()
        request.labels.run = run
        if run == "older":
            request.sums.weight.ClearField("kept_weight")
            request.sums.weight.ClearField("kept_weight_squared")
        else:
            request.sums.MergeFromString(b"\xfa\x3f\x01x")  # field 1023
        assert publish(server, request) == ("OK", "")
        assert gauges(server, run) == gauges(server, "same")


def test_forged_parts_of_a_step_are_refused(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server()
    good = publication()
    assert publish(server, good) == ("OK", "")
    for change, field in (
        (lambda r: r.partial_sums.sums.__setitem__(6, 1.0), "partial_sums"),
        (lambda r: r.ClearField("method"), "partial_sums"),
        (lambda r: r.labels.ClearField("step"), "labels.step"),
        (lambda r: r.method.preset.parameters.update(upper=9.0), "method"),
        (lambda r: setattr(r.sums, "kept_tokens", 0), "partial_sums"),
    ):
        forged = pb.PublishRequest()
        forged.CopyFrom(good)
        forged.request_id += field
        change(forged)
        code, details = publish(server, forged)
        assert code == "INVALID_ARGUMENT", field
        assert field in details
