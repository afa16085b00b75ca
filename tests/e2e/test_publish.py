"""A local client's batches in a server's metrics: ``Client("local:", publish=...)``."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent import futures
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import grpc
import numpy as np
import pytest
from batches import padded_batch
from counterweight_rl import compat
from counterweight_rl.transport import publisher
from counterweight_rl.transport.channel import SERVICE
from goldens import BLAMED_FIELDS, GOLDENS, arguments
from server_process import REPOSITORY, ServerProcess
from test_staleness_over_the_wire import TRAINED, stale_batch
from transports import LOSS, SMALL, assert_same

pytestmark = pytest.mark.usefixtures("local_library")

BATCH = padded_batch(seed=8)
# No token has drift that float32 can hold.
INFINITE = {**padded_batch(2, 3, seed=1), "rollout_log_probs": np.full((2, 3), -300, np.float32)}
INFINITE["old_log_probs"] = np.zeros((2, 3), np.float32)
WITH_KL = cw.Preset(
    "token_tis",
    policy_loss=LOSS.policy_loss,
    kl_penalty=cw.KlPenalty(estimator=cw.KlEstimator.K3, coefficient=0.01),
)


def all_batches() -> list[dict[str, Any]]:
    """Every kind of sums; fewer than may wait to be sent."""
    batches = [{**batch, "method": LOSS} for batch in SMALL.values()]
    batches += [
        {**stale_batch(), "method": LOSS, "policy_version": TRAINED},
        {**stale_batch(3, 9, seed=2), "method": "seq_mis", "policy_version": TRAINED + 200},
        {**BATCH, "method": WITH_KL, "ref_log_probs": BATCH["old_log_probs"], "policy_version": 3},
        {**INFINITE, "method": "token_tis", "run": "infinite"},
        {**BATCH, "method": "geo_rs_token_tis", "metrics": False},
    ]
    names = [name for name in GOLDENS if name not in BLAMED_FIELDS]
    batches += [arguments(GOLDENS[name]) for name in names[::11]]
    assert len(batches) < publisher.QUEUE
    return [
        {"run": f"run-{i % 3}", "request_id": f"id-{i}", **batch} for i, batch in enumerate(batches)
    ]


def series_of(server: ServerProcess) -> list[str]:
    """The text of the families about batches."""
    families = ("counterweight_drift_", "counterweight_loss", "counterweight_corrected_")
    lines = server.scrape().splitlines()
    return [
        line
        for line in lines
        if line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(families)
    ]


def page_of(server: ServerProcess, run: str) -> dict[str, Any]:
    """The page's numbers, without times."""
    url = server.metrics_url.replace("/metrics", f"/page.json?run={run}")
    with urllib.request.urlopen(url, timeout=60) as answer:
        page: dict[str, Any] = json.load(answer)["run"]
    del page["times"]
    return page


def wait_for(server: ServerProcess, batches: int) -> None:
    deadline = time.monotonic() + 60
    while server.count("counterweight_corrected_batches_total") < batches:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_series_are_the_servers_own(start_server: Callable[..., ServerProcess]) -> None:
    computing, publishing = start_server(), start_server()
    batches = all_batches()
    with (
        cw.Client(computing.address) as remote,
        cw.Client("local:", publish=publishing.address) as local,
    ):
        for batch in batches:
            assert_same(local.correct(**batch), remote.correct(**batch))
        wait_for(publishing, len(batches) - 1)  # one is without metrics
    assert local.publish_dropped == 0
    expected = series_of(computing)
    assert len([line for line in expected if 'run="run-1"' in line]) > 80
    assert any(line.endswith(("Inf", "inf")) for line in expected)
    assert series_of(publishing) == expected
    assert publishing.count("counterweight_tokens_total") == 0
    for run in ("run-0", "run-1", "run-2", "infinite"):
        assert page_of(publishing, run) == page_of(computing, run)


def test_asyncio_and_compat(
    start_server: Callable[..., ServerProcess],
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = start_server(listen=f"unix:{folder}/publish")
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 60.0)  # for a busy machine

    async def ask() -> None:
        async with cw.aio.Client("local:", publish=server.address) as client:
            await asyncio.gather(
                *(client.correct(method="token_tis", run=f"aio-{i}", **BATCH) for i in range(3))
            )
        assert client.publish_dropped == 0

    asyncio.run(ask())
    assert server.count("counterweight_corrected_batches_total") == 3
    monkeypatch.setenv("COUNTERWEIGHT_TARGET", "local:")
    monkeypatch.setenv("COUNTERWEIGHT_PUBLISH", server.address)
    monkeypatch.setenv("COUNTERWEIGHT_RUN", "by-variable")
    compat.use()
    try:
        client = compat.client()
        client.correct(method="token_tis", run="by-variable", **BATCH)
        wait_for(server, 4)
        client.close()
    finally:
        compat.use(None)
    assert server.count('counterweight_drift_batches_total{run="by-variable"}') == 1


def test_a_token_is_sent(
    start_server: Callable[..., ServerProcess], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 60.0)
    line = subprocess.run(
        [
            os.environ.get(
                "COUNTERWEIGHT_SERVER", REPOSITORY / "build/release/counterweight-server"
            ),
            "--hash_token=trainer",
        ],
        input="secret-token-of-a-trainer",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    (tmp_path / "tokens").write_text(line)
    server = start_server(f"--tokens={tmp_path}/tokens")
    with cw.Client("local:", publish=server.address) as client:
        client.correct(method="token_tis", **BATCH)
    assert client.publish_dropped == 1
    with cw.Client("local:", publish=server.address, token="secret-token-of-a-trainer") as client:
        client.correct(method="token_tis", **BATCH)
    assert client.publish_dropped == 0
    (taken,) = server.events("request")
    assert (taken["rpc"], taken["code"], taken["client"]) == ("Publish", "OK", "trainer")


def test_a_killed_server_costs_counts_alone(
    start_server: Callable[..., ServerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()
    with cw.Client("local:") as alone:
        expected = alone.correct(method=LOSS, **BATCH)
    with cw.Client("local:", publish=server.address) as client:
        client.correct(method=LOSS, **BATCH)
        wait_for(server, 1)
        server.stop()
        for _ in range(publisher.QUEUE + 20):
            assert_same(client.correct(method=LOSS, **BATCH), expected)
        dropped = client.publish_dropped
        assert 18 <= dropped <= 20  # one or two were on their way
    assert client.publish_dropped == publisher.QUEUE + 20
    assert len([each for each in caplog.records if "sums" in each.message]) == 1


def test_a_frozen_server_costs_counts_alone(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    with cw.Client("local:", publish=server.address) as client:
        client.correct(method=LOSS, **BATCH)
        wait_for(server, 1)
        server.freeze()
        try:
            # Would take half an hour if each waited for an attempt.
            for _ in range(publisher.QUEUE + 100):
                client.correct(method=LOSS, **BATCH)
            assert 98 <= client.publish_dropped <= 100
        finally:
            server.process.send_signal(signal.SIGCONT)
        # Nothing that still waits is lost, and nothing counts twice.
        wait_for(server, 1 + publisher.QUEUE + 100 - client.publish_dropped)
    assert server.count("counterweight_corrected_batches_total") == (
        1 + publisher.QUEUE + 100 - client.publish_dropped
    )


def test_closing_does_not_wait_for_a_frozen_server(
    start_server: Callable[..., ServerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 0.2)
    server = start_server()
    server.freeze()
    client = cw.Client("local:", publish=server.address)
    for _ in range(3):
        client.correct(method=LOSS, **BATCH)
    client.close()
    server.process.send_signal(signal.SIGCONT)
    assert client.publish_dropped == 3


def test_a_server_that_returns_gets_what_waits(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    with cw.Client("local:", publish=server.address) as client:
        client.correct(method=LOSS, **BATCH)
        wait_for(server, 1)
        server.stop()
        for _ in range(10):
            client.correct(method=LOSS, **BATCH)
        again = start_server(listen=server.address)
        wait_for(again, 10)
        assert client.publish_dropped == 0


def test_forked_children_publish_their_own(start_server: Callable[..., ServerProcess]) -> None:
    """Those of a process that has published before cannot, and report it."""
    server = start_server()
    code = (
        "import os, signal, sys\n"
        "import counterweight_rl as cw\n"
        "from batches import padded_batch\n"
        "from counterweight_rl.transport import publisher\n"
        "publisher.FLUSH_SECONDS = 60.0\n"
        "client = cw.Client('local:', publish=sys.argv[1])\n"
        "ask = lambda: client.correct(method='token_tis', **padded_batch())\n"
        "for _ in range(int(sys.argv[2])): ask()\n"
        "children = []\n"
        "for _ in range(2):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.alarm(50)\n"
        "        for _ in range(3): ask()\n"
        "        client.close()\n"
        "        os._exit(client.publish_dropped)\n"
        "    children.append(child)\n"
        "print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])\n"
        "ask()\n"
    )  # and ends without closing
    environment = {**os.environ}
    environment["PYTHONPATH"] = f"{REPOSITORY}/client/python:{REPOSITORY}/tests/e2e"
    counted = 0
    for used_before, dropped, sent in ((0, 0, 7), (2, 3, 3)):
        done = subprocess.run(
            [sys.executable, "-c", code, server.address, str(used_before)],
            check=True,
            timeout=100,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"[{dropped}, {dropped}]\n"
        assert done.stderr.count("forked after its parent") == (2 if dropped else 0)
        counted += sent
        assert server.count("counterweight_corrected_batches_total") == counted


def test_a_fork_waits_for_the_attempt_in_progress(
    folder: pathlib.Path,
) -> None:
    """Else threads that gRPC starts again in the child may end it by a segmentation fault."""
    asked, may_answer = threading.Event(), threading.Event()

    def answer(message: bytes, context: grpc.ServicerContext) -> bytes:
        asked.set()
        may_answer.wait(60)
        return b""

    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                SERVICE.strip("/"), {"Publish": grpc.unary_unary_rpc_method_handler(answer)}
            ),
        )
    )
    server.add_insecure_port(f"unix:{folder}/slow")
    server.start()
    try:
        with cw.Client("local:", publish=f"unix:{folder}/slow") as client:
            client.correct(method="token_tis", **BATCH)
            assert asked.wait(60)
            (own,) = [each for each in publisher._publishers if each._target.endswith("/slow")]
            assert not own.pause(0.0)
            may_answer.set()
            assert own.pause(60.0)
            asked.clear()
            client.correct(method="token_tis", **BATCH)
            assert not asked.is_set()
            own.resume()
            assert asked.wait(60)
        assert client.publish_dropped == 0
    finally:
        server.stop(None)


def test_the_server_names_a_wrong_number(server: ServerProcess) -> None:
    import grpc
    from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
    from counterweight_rl._gen.counterweight.v1 import correction_service_pb2_grpc as rpc

    request = pb.PublishRequest(request_id="x")
    request.sums.tokens = -1
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        rpc.CorrectionServiceStub(channel).Publish(request, timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "sums.tokens: must be from 0 to" in caught.value.details()
    assert "sums.drift: is required" in caught.value.details()


def test_wrong_arguments(server: ServerProcess) -> None:
    with pytest.raises(ValueError, match='publish is for a target "local:"'):
        cw.Client(server.address, publish=server.address)
    with pytest.raises(ValueError, match='must be a server\'s address, "host:port"'):
        cw.Client("local:", publish="local:")
    with pytest.raises(ValueError, match="must be a server's address"):
        cw.aio.Client("local:", publish="")
    with pytest.raises(TypeError, match="publish must be a str, not bool"):
        cw.Client("local:", publish=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="could be read on its way"):
        cw.Client("local:", publish="trainer.example:50051", token="secret")
    with pytest.raises(ValueError, match="transport is for a server"):
        cw.Client("local:", publish=server.address, transport="stream")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('grpc', 'google')))\n"
        "import counterweight_rl as cw\n"
        "cw.Client('local:', publish='localhost:1')"
    )
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/client/python"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stderr.splitlines()[-1] == (
        "ImportError: publish='localhost:1' needs grpcio: pip install \"counterweight-rl[remote]\""
    )
