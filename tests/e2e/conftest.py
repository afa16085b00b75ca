from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import pytest
from counterweight_rl import compat
from counterweight_rl.compat import _releases
from counterweight_rl.local import library
from counterweight_rl.transport import channel
from device_arrays import Device, library_file
from goldens import GOLDENS, release_of
from prometheus_process import find_tool
from server_process import REPOSITORY, ServerProcess, binary

# The client's own tests define the fake device.
sys.path.append(str(REPOSITORY / "client/python/tests"))

# Limit of one test with its processes; a hang ends here instead of at CI's limit.
TIMEOUT_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> Iterator[None]:
    """Keeps the developer's proxy out of loopback connections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        yield


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Returns the path of a program of Debian's package prometheus."""

    def find(name: str) -> str:
        found = find_tool(name)
        if found is None:
            pytest.skip(f"{name} is not installed: .ci/setup")
        return found

    return find


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[..., ServerProcess]]:
    """Starts servers with a test's own flags; stops all at the end."""
    if not binary().exists():
        pytest.fail(
            f"{binary()} is missing: make build, or set COUNTERWEIGHT_SERVER",
            pytrace=False,
        )
    with contextlib.ExitStack() as stack:

        def start(*flags: str, **kwargs: Any) -> ServerProcess:
            server = ServerProcess(*flags, **kwargs)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give a busy server minutes to take a connection and to answer a ping.

    For clients without retries whose test is not about that time.
    """
    times = (
        "grpc.min_reconnect_backoff_ms",
        "grpc.keepalive_timeout_ms",
        "grpc.http2.ping_timeout_ms",
    )
    options = [(name, 300_000 if name in times else value) for name, value in channel._OPTIONS]
    monkeypatch.setattr(channel, "_OPTIONS", options)


@pytest.fixture(scope="session")
def server(start_server: Callable[..., ServerProcess]) -> ServerProcess:
    return start_server()


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[cw.Client]:
    with cw.Client(server.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def local_library() -> None:
    """There is libcounterweight.so."""
    try:
        library.load()
    except cw.CounterweightError as why:
        if library.VARIABLE in os.environ:
            raise
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """The fake device, and a libcounterweight on it."""
    if not library_file().exists():
        pytest.skip(f"{library_file()} is missing: make build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTERWEIGHT_FAKE_CUDA_DEVICES", "2")
        patch.setenv(library.VARIABLE, str(library_file()))
        library.load.cache_clear()
        # Else the fake runtime's functions would be those of torch's own CUDA runtime, once torch is imported.
        ctypes.CDLL(str(library_file()), mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
        yield Device()
        library.load.cache_clear()


@pytest.fixture
def local_cuda(device: Device) -> Iterator[cw.Client]:
    device.set_seed(0)
    with cw.Client("local:cuda") as client:
        yield client
    device.set_seed(0)


@pytest.fixture
def tensors(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """torch's tensors on the fake device; a ``device_tensors.Tensors``."""
    pytest.importorskip("torch")
    from device_tensors import Tensors

    yield Tensors(device, monkeypatch)
    device.free()


@pytest.fixture(scope="session")
def folder() -> Iterator[pathlib.Path]:
    # Socket paths must be short.
    with tempfile.TemporaryDirectory() as name:
        yield pathlib.Path(name)


@pytest.fixture(scope="session")
def sharing(start_server: Callable[..., ServerProcess], folder: pathlib.Path) -> ServerProcess:
    return start_server(
        f"--shared_memory_socket={folder}/memory", listen=f"unix:{folder}/counterweight"
    )


@pytest.fixture
def compat_client(client: cw.Client) -> Iterator[None]:
    """The functions of ``counterweight_rl.compat`` call the server."""
    compat.use(client)
    yield
    compat.use(None)


@pytest.fixture
def installed_release(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the release of the test's golden."""
    callspec = getattr(request.node, "callspec", None)
    name = callspec.params.get("name") if callspec else None
    if name in GOLDENS:
        installed = release_of(GOLDENS[name])
        monkeypatch.setattr(_releases, "_installed", lambda _: installed or None)
