"""The comparison with the echo: both servers answer their clients, by each transport."""

from __future__ import annotations

import pathlib

import e2e
import pytest
import server_process


@pytest.mark.server_only
@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_the_server_and_the_echo_are_timed_in_turn(
    tmp_path: pathlib.Path, transport: e2e.Transport
) -> None:
    bench = server_process.binary().with_name("counterweight-bench")
    server = server_process.ServerProcess(listen=f"unix:{tmp_path}/server")
    try:
        times = e2e.time_shape(server.address, bench, str(tmp_path), (8, 16, 2, transport))
    finally:
        server.stop()
    assert times["tokens"] == 128
    assert times["transport"] == transport
