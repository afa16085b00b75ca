"""Tokens that are bound to runs: what they may correct and publish, over each transport."""

from __future__ import annotations

import asyncio
import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from counterweight_rl import aio
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl.transport.channel import SERVICE
from server_process import ServerProcess, binary, wait_until
from test_tokens import OTHER, TRAINER, line, scrape

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]
BOUND = line("team-a", TRAINER).rstrip() + " runs=team-a-*,eval\n"
FREE = line("free", OTHER)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "tokens"
    path.write_text(BOUND + FREE)
    return path


@pytest.fixture
def server(start_server: StartServer, file: pathlib.Path) -> Iterator[ServerProcess]:
    running = start_server(f"--tokens={file}")
    yield running
    running.stop()


def runs_of(server: ServerProcess) -> set[str]:
    page = scrape(server, f"Bearer {OTHER}")
    return set(re.findall(r'counterweight_drift_batches_total{run="([^"]*)"}', page))


def is_refused(error: cw.CounterweightError | grpc.RpcError, run: str | None) -> None:
    code = error.code() if isinstance(error, grpc.RpcError) else error.code
    assert code is grpc.StatusCode.PERMISSION_DENIED
    wrong = "is required of the token 'team-a'"
    if run is not None:
        wrong = f"the token 'team-a' may not write the run '{run}'"
    assert f"labels.run: {wrong}; its runs are team-a-*,eval" in str(error)


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_other_runs_are_refused(server: ServerProcess, transport: Any) -> None:
    with cw.Client(server.address, token=TRAINER, transport=transport) as client:
        for run in ("team-a-1", "team-a-", "eval"):
            client.correct(method="token_tis", run=run, **padded_batch())
        for run in ("team-b-1", "team-a", "eval2", "Eval", None):
            with pytest.raises(cw.CounterweightError) as caught:
                client.correct(method="token_tis", run=run, **padded_batch())
            is_refused(caught.value, run)
        # Whether or not the answer has metrics: the log names the run.
        with pytest.raises(cw.CounterweightError) as caught:
            client.correct(method="token_tis", run="team-b-1", metrics=False, **padded_batch())
        is_refused(caught.value, "team-b-1")
        assert client.list_methods()
        assert client.server_info().version
    assert runs_of(server) == {"team-a-1", "team-a-", "eval"}
    with cw.Client(server.address, token=OTHER, transport=transport) as client:
        client.correct(method="token_tis", run="team-b-1", **padded_batch())
        client.correct(method="token_tis", **padded_batch())
    assert runs_of(server) == {"team-a-1", "team-a-", "eval", "team-b-1", ""}


def test_asyncio(server: ServerProcess) -> None:
    async def ask() -> None:
        async with aio.Client(server.address, token=TRAINER) as client:
            await client.correct(method="token_tis", run="eval", **padded_batch())
            with pytest.raises(cw.CounterweightError) as caught:
                await client.correct(method="token_tis", run="team-b", **padded_batch())
            is_refused(caught.value, "team-b")

    asyncio.run(ask())


def test_publications_are_refused(server: ServerProcess) -> None:
    def publish(run: str, token: str) -> None:
        request = pb.PublishRequest(request_id="id", labels=pb.Labels(run=run))
        sums = request.sums
        sums.sequences = sums.nonempty_sequences = sums.tokens = 1
        sums.drift.token_histogram.extend([0] * 5 + [1] + [0] * 5)
        sums.drift.sequence_histogram.extend([0] * 5 + [1] + [0] * 5)
        channel.unary_unary(SERVICE + "Publish")(
            request.SerializeToString(),
            timeout=60,
            metadata=(("authorization", f"Bearer {token}"),),
        )

    with grpc.insecure_channel(server.address) as channel:
        publish("team-a-1", TRAINER)
        for run in ("team-b-1", ""):
            with pytest.raises(grpc.RpcError) as caught:
                publish(run, TRAINER)
            is_refused(caught.value, run or None)
        # A label that is none is not repeated.
        with pytest.raises(grpc.RpcError) as caught:
            publish("a\nb", TRAINER)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "may not write this run" in str(caught.value.details())
        publish("team-b-1", OTHER)
    assert runs_of(server) == {"team-a-1", "team-b-1"}


def test_declarations_are_refused(server: ServerProcess) -> None:
    with cw.Client(server.address, token=TRAINER) as client:
        assert client.declare_run("token_tis", run="team-a-1").method == "token_tis"
        with pytest.raises(cw.CounterweightError) as caught:
            client.declare_run("token_tis", run="team-b-1")
        is_refused(caught.value, "team-b-1")
    page = scrape(server, f"Bearer {OTHER}")
    assert re.findall(r'run_other_method_total{run="([^"]*)"} 0', page) == ["team-a-1"]


def test_audited_rows_are_refused(server: ServerProcess) -> None:
    batch = padded_batch()
    names = ("rollout_log_probs", "old_log_probs", "response_mask")
    arrays = {name: batch[name] for name in names}
    with cw.Client(server.address, token=TRAINER) as client:
        client.diagnose(**arrays, run="team-a-1", audit=cw.Audit())
        for run in ("team-b-1", None):
            with pytest.raises(cw.CounterweightError) as caught:
                client.diagnose(**arrays, run=run, audit=cw.Audit())
            is_refused(caught.value, run)
        # A diagnosis alone is counted with no run.
        client.diagnose(**arrays, run="team-b-1")
    page = scrape(server, f"Bearer {OTHER}")
    assert re.findall(r'audited_rows_total{run="([^"]*)"}', page) == ["team-a-1"]


def test_a_changed_file_binds_open_connections(server: ServerProcess, file: pathlib.Path) -> None:
    with cw.Client(server.address, token=OTHER) as client:
        client.correct(method="token_tis", run="team-b", **padded_batch())
        file.write_text(BOUND + FREE.rstrip() + " runs=team-c-*\n")

        def is_bound() -> bool:
            try:
                client.correct(method="token_tis", run="team-b", **padded_batch())
            except cw.CounterweightError as error:
                assert error.code is grpc.StatusCode.PERMISSION_DENIED
                return True
            return False

        wait_until(is_bound)
        client.correct(method="token_tis", run="team-c-1", **padded_batch())
    (last,) = [e for e in server.events("request", 1) if e["code"] != "OK"][:1]
    assert (last["code"], last["run"], last["client"]) == ("PERMISSION_DENIED", "team-b", "free")


@pytest.mark.parametrize("word", ["runs=", "runs=a,", "runs=a b", "run=a", "runs=a?", "a"])
def test_a_malformed_word_refuses_the_file(file: pathlib.Path, word: str) -> None:
    file.write_text(FREE + line("team-a", TRAINER).rstrip() + f" {word}\n")
    ended = subprocess.run(
        [binary(), "--listen=127.0.0.1:0", "--metrics_listen=", f"--tokens={file}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "line 2: after the name comes 'sha256:'" in ended.stderr
    assert "then nothing or 'runs=' with 1 to 64 patterns" in ended.stderr
