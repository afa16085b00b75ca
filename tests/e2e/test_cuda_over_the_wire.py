"""The server on the fake CUDA runtime: the view of clients, probes and Prometheus on
--backend=cuda, without a GPU."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import compare_backends
import counterweight_rl as cw
import grpc
import numpy as np
import pytest
from batches import padded_batch
from goldens import SYSTEMS
from server_process import DEADLINE_SECONDS, ServerProcess, binary
from transports import ARRAYS, LOSS, assert_same

FAKE = binary().with_name("counterweight-server-on-fake-cuda")
pytestmark = [
    pytest.mark.server_only,
    pytest.mark.skipif(not FAKE.exists(), reason=f"{FAKE.name} is not built"),
]

# grpc.health.v1.HealthCheckResponse with its field 1 (status) set.
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
StartFake = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def start_fake(start_server: Callable[..., ServerProcess]) -> StartFake:
    """Starts it with flags, and with the fake's settings by lower-case name."""

    def start(*flags: str, **settings: object) -> ServerProcess:
        environment = {
            f"COUNTERWEIGHT_FAKE_CUDA_{name.upper()}": str(value)
            for name, value in settings.items()
        }
        return start_server(*flags, program=FAKE, environment=environment)

    return start


@pytest.fixture(scope="module")
def comparison(start_fake: StartFake) -> compare_backends.Comparison:
    cuda = start_fake("--backend=cuda", "--devices=all", devices=2)
    return compare_backends.Comparison(cuda, start_fake("--backend=cpu"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_goldens_have_the_cpus_bytes(comparison: compare_backends.Comparison, system: str) -> None:
    before = comparison.answered + comparison.refused
    comparison.run(compare_backends.golden_cases(system))
    assert comparison.differences == []
    assert comparison.answered + comparison.refused == before + SYSTEMS[system]


def test_methods_have_the_cpus_bytes(comparison: compare_backends.Comparison) -> None:
    before = comparison.answered
    methods = comparison.methods()
    comparison.run(compare_backends.method_cases(methods))
    assert comparison.differences == []
    assert comparison.answered == before + len(methods)


@pytest.mark.parametrize(
    ("flag", "given", "connections"),
    [("--backend=cuda", None, "32"), ("--backend=auto", "4", "4"), ("--backend=cpu", None, None)],
)
def test_the_server_starts_with_a_queue_for_each_stream(
    start_server: Callable[..., ServerProcess],
    flag: str,
    given: str | None,
    connections: str | None,
) -> None:
    """CUDA reads the variable before main(), so that the environment it starts with counts."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    server = start_server(flag, program=FAKE, environment={name: given} if given else {})
    entries = pathlib.Path(f"/proc/{server.process.pid}/environ").read_bytes().split(b"\0")
    found = dict(entry.decode().partition("=")[::2] for entry in entries)
    assert found.get(name) == connections
    arguments = pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_bytes().split(b"\0")
    assert flag.encode() in arguments


def test_chunks_have_the_cpus_bytes(comparison: compare_backends.Comparison) -> None:
    comparison.run(compare_backends.batch_cases(large=False), chunks=True)
    assert comparison.differences == []


def test_the_first_device_alone_is_the_default(start_fake: StartFake) -> None:
    server = start_fake(devices=3)
    with cw.Client(server.address) as client:
        info = client.server_info()
        assert info.backend == "cuda"
        assert [device.index for device in info.devices] == [0]
        assert client.correct(method="token_tis", **padded_batch()).backend == "cuda"
    (started,) = server.events("started")
    assert started["backend"]["name"] == "cuda"
    assert [device["index"] for device in started["backend"]["devices"]] == [0]


@pytest.mark.parametrize(("flag", "indices"), [("all", [0, 1, 2]), ("2,0", [2, 0])])
def test_devices_by_the_flag(start_fake: StartFake, flag: str, indices: list[int]) -> None:
    server = start_fake(f"--devices={flag}", devices=3)
    with cw.Client(server.address) as client:
        devices = client.server_info().devices
        assert [device.index for device in devices] == indices
        assert all(device.name and device.memory_bytes > 0 for device in devices)
    for index in indices:
        assert server.metric(f'counterweight_device_errors_total{{device="{index}"}}') == 0
        assert server.metric(f'counterweight_device_seconds_total{{device="{index}"}}') == 0


@pytest.mark.parametrize(
    ("flags", "devices", "words"),
    [
        (["--devices=2"], 2, ["--devices=2", "no device 2"]),
        (["--devices=all"], 0, ["--devices=all"]),
        (["--backend=cuda"], 0, ["--backend=cuda"]),
    ],
)
def test_devices_that_are_not_there(flags: list[str], devices: int, words: list[str]) -> None:
    ended = subprocess.run(
        [FAKE, "--listen=127.0.0.1:0", "--metrics_listen=", *flags],
        env={"COUNTERWEIGHT_FAKE_CUDA_DEVICES": str(devices)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ended.returncode == 1
    assert all(word in ended.stderr for word in words), ended.stderr


def test_auto_without_devices_says_why(start_fake: StartFake) -> None:
    server = start_fake(devices=0)
    with cw.Client(server.address) as client:
        assert client.server_info().backend == "cpu"
    (started,) = server.events("started")
    assert started["backend"]["name"] == "cpu"
    assert started["no_cuda"]


def test_concurrent_batches_share_the_devices(start_fake: StartFake) -> None:
    """Every device gives the same answer, and each has work."""
    server = start_fake("--devices=all", "--threads=4", devices=2)
    batches = [padded_batch(4, 200, seed=seed) for seed in range(6)]
    asked: dict[str, Any] = {"method": LOSS, "outputs": (*ARRAYS, "loss")}
    with cw.Client(server.address, max_in_flight=6) as client:
        alone = [client.correct(**asked, **batch) for batch in batches]
        pending = [client.submit(**asked, **batch) for batch in batches]
        for future, expected in zip(pending, alone, strict=True):
            assert_same(future.result(DEADLINE_SECONDS), expected)
    assert server.metric('counterweight_device_seconds_total{device="0"}') > 0


@pytest.mark.parametrize(
    ("flags", "settings"), [([], {"memory": 1 << 20}), ([f"--device_memory_bytes={1 << 20}"], {})]
)
def test_a_full_device_is_worth_a_retry(
    start_fake: StartFake, flags: list[str], settings: dict[str, int]
) -> None:
    server = start_fake(*flags, **settings)
    with cw.Client(server.address, retry=False) as client:
        with pytest.raises(cw.OverloadedError, match="smaller batch") as caught:
            client.correct(method="token_tis", **padded_batch(8, 1 << 15))
        assert caught.value.retry_after == 1.0
        # The device is full, not broken.
        assert client.correct(method="token_tis", **padded_batch()).metrics
    assert server.metric("counterweight_ready") == 1
    assert server.metric('counterweight_device_errors_total{device="0"}') == 0


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_an_error_of_one_request_is_that_requests(start_fake: StartFake, transport: str) -> None:
    server = start_fake(fail_launch=2)
    batch = padded_batch()
    with cw.Client(server.address, transport=transport) as client:
        with pytest.raises(cw.CounterweightError) as caught:
            client.correct(method="token_tis", **batch)
        assert caught.value.code is grpc.StatusCode.INTERNAL
        assert client.correct(method="token_tis", **batch).metrics
    assert server.metric("counterweight_ready") == 1
    assert server.metric('counterweight_device_errors_total{device="0"}') == 1
    assert server.metric('counterweight_device_lost{device="0"}') == 0
    (logged,) = server.events("device_error")
    assert "invalid argument" in logged["what"]


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_a_lost_device_is_seen_by_everyone(start_fake: StartFake, transport: str) -> None:
    server = start_fake("--devices=all", devices=2, fail_operation=60)
    batch = padded_batch()
    with (
        cw.Client(server.address, transport=transport) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        health = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE_SECONDS)
        assert next(health) == SERVING
        expected = client.correct(method="token_tis", **batch).weights
        with pytest.raises(cw.CounterweightError) as caught:
            for _ in range(60):
                result = client.correct(method="token_tis", **batch)
                # Answers are correct until it fails.
                np.testing.assert_array_equal(result.weights, expected)
        assert caught.value.code is grpc.StatusCode.INTERNAL
        assert "CUDA" not in str(caught.value)
        assert "illegal" not in str(caught.value)
        assert caught.value.request_id in str(caught.value)
        assert next(health) == NOT_SERVING
        health.cancel()
        assert client.server_info().backend == "cuda"
    assert server.metric("counterweight_ready") == 0
    errors = [server.metric(f'counterweight_device_errors_total{{device="{i}"}}') for i in range(2)]
    # A batch goes to the other device while the earlier one is released.
    assert sorted(errors) == [0, 1]
    lost = [server.metric(f'counterweight_device_lost{{device="{i}"}}') for i in range(2)]
    assert lost == errors
    (logged,) = server.events("device_lost")
    assert logged["level"] == "error"
    assert logged["request_id"] == caught.value.request_id
    assert logged["what"].startswith(f"device {errors.index(1)}: ")
    assert "an illegal memory access" in logged["what"]
    server.terminate()
    assert server.wait() == 0
