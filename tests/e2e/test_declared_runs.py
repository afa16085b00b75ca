"""Runs that declare their method: by every client, transport and kind of correction."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import time
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from counterweight_rl import aio
from server_process import ServerProcess

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("local_library")]

OLD = -np.random.default_rng(1).exponential(1.0, (4, 20)).astype(np.float32)
BATCH: dict[str, Any] = {
    "rollout_log_probs": OLD * np.float32(1.01),
    "old_log_probs": OLD,
    "response_mask": np.ones(OLD.shape, np.uint8),
}


def other(run: str, method: str = "icepop") -> str:
    return f"run '{run}' declares token_tis; this batch was corrected by {method}"


def counted(server: ServerProcess, run: str) -> float:
    return server.metric(f'counterweight_run_other_method_total{{run="{run}"}}')


@pytest.mark.parametrize("transport", ["unary", "stream", "shared_memory"])
def test_every_transport_warns(
    sharing: ServerProcess, folder: pathlib.Path, transport: Any
) -> None:
    run = f"by_{transport}"
    with cw.Client(f"unix:{folder}/counterweight", transport=transport) as client:
        assert client.declare_run("token_tis", run=run) == cw.RunDeclaration("token_tis", ())
        for same in ("token_tis", cw.Preset("token_tis", upper=2.0)):
            assert client.correct(method=same, run=run, **BATCH).warnings == ()
        assert counted(sharing, run) == 0
        result = client.correct(method="icepop", run=run, **BATCH)
        assert result.warnings == (other(run),)
        assert client.correct(method="icepop", run="free", **BATCH).warnings == ()
        assert client.correct(method="icepop", **BATCH).warnings == ()
    assert counted(sharing, run) == 1


def test_asyncio_and_a_replaced_method(server: ServerProcess) -> None:
    async def declare() -> tuple[cw.RunDeclaration, cw.RunDeclaration]:
        async with aio.Client(server.address) as client:
            return (
                await client.declare_run("token_tis", run="asyncio"),
                await client.declare_run("icepop", run="asyncio"),
            )

    first, second = asyncio.run(declare())
    assert first == cw.RunDeclaration("token_tis", ())
    assert second.method == "icepop"
    assert second.warnings == (
        "run 'asyncio' declared token_tis before, which this declaration replaces by icepop",
    )


def test_a_local_client_compares_its_own_batches(client: cw.Client) -> None:
    with cw.Client("local:") as local:
        # The third call of a kind is prepared.
        for _ in range(3):
            assert local.correct(method="icepop", run="local", **BATCH).warnings == ()
        assert local.declare_run("token_tis", run="local") == cw.RunDeclaration("token_tis", ())
        for _ in range(3):
            result = local.correct(method="icepop", run="local", **BATCH)
            assert result.warnings == (other("local"),)
            assert local.correct(method="token_tis", run="local", **BATCH).warnings == ()
            assert local.correct(method="icepop", run="free", **BATCH).warnings == ()
        (replaced,) = local.declare_run("icepop", run="local").warnings
        assert replaced.endswith(
            "declared token_tis before, which this declaration replaces by icepop"
        )
        assert local.correct(method="icepop", run="local", **BATCH).warnings == ()
    # Another handle has no declaration.
    with cw.Client("local:") as local:
        assert local.correct(method="token_tis", run="local", **BATCH).warnings == ()


@pytest.mark.parametrize("step", [None, 3])
def test_a_local_client_declares_to_the_server_that_it_publishes_to(
    server: ServerProcess, step: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    run = f"published_{step}"
    labels: dict[str, Any] = {"run": run} if step is None else {"run": run, "step": step}
    with cw.Client("local:", publish=server.address) as local:
        local.declare_run("token_tis", run=run)
        local.correct(method="token_tis", **labels, **BATCH)
        result = local.correct(method="icepop", **labels, **BATCH)
    assert result.warnings == (other(run),)
    deadline = time.monotonic() + 60
    while counted(server, run) != 1:
        assert time.monotonic() < deadline
    assert server.metric(f'counterweight_drift_batches_total{{run="{run}"}}') == 2
    # Another process of the run has declared nothing.
    caplog.set_level(logging.WARNING)
    with cw.Client("local:", publish=server.address) as worker:
        assert worker.correct(method="icepop", **labels, **BATCH).warnings == ()
    while counted(server, run) != 2:
        assert time.monotonic() < deadline
    assert f"{server.address} warns: {other(run)}" in caplog.text


@pytest.mark.parametrize("target", ["server", "local:"])
def test_errors_are_those_of_correct(server: ServerProcess, target: str) -> None:
    address = server.address if target == "server" else target
    with cw.Client(address) as client:
        for method, text in (
            ("token_ti", "No preset is called"),
            (cw.Preset("token_tis", upper=-1.0), "upper"),
            (cw.Dialect("verl", {"no_such_key": 1}), "no_such_key"),
        ):
            with pytest.raises(cw.InvalidRequestError) as corrected:
                client.correct(method=method, **BATCH)
            with pytest.raises(cw.InvalidRequestError, match=text) as declared:
                client.declare_run(method, run="wrong")
            assert declared.value.violations == corrected.value.violations
        with pytest.raises(cw.InvalidRequestError, match="run: must match"):
            client.declare_run("token_tis", run="two words")
        with pytest.raises(cw.InvalidRequestError, match="run: is required"):
            client.declare_run("token_tis", run="")
