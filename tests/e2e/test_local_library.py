"""libcounterweight.so as a file, and beside other libraries."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from typing import Any

import counterweight_rl as cw
import pytest
from batches import padded_batch
from counterweight_rl.local import library
from server_process import REPOSITORY, ServerProcess
from transports import assert_same


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


def run_tool(*arguments: str) -> str:
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def test_exports_nothing_but_its_functions() -> None:
    path = library.load()._name
    names = run_tool("nm", "-D", "--defined-only", "--format=just-symbols", path).split()
    header = (REPOSITORY / "server/embedded/counterweight.h").read_text()
    declared = re.findall(r"^CW_EXPORT [^;]*?\b(cw_\w+)\(", header, re.MULTILINE)
    assert sorted(names) == sorted(declared)


def test_needs_nothing_but_the_system() -> None:
    dynamic = run_tool("readelf", "-d", library.load()._name)
    needed = set(re.findall(r"NEEDED.*\[(\w+)", dynamic))
    # glibc's (the wheel's glibc has two more), and what g++ brings. No protobuf, no gRPC, no OpenSSL.
    assert needed <= {"libstdc", "libm", "libgcc_s", "libc", "ld", "libpthread", "libdl"}


@pytest.fixture
def brought(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The library of another distribution, as counterweight-rl-cu13 brings it."""
    module = tmp_path / "brought_library.py"
    module.write_text(
        "import pathlib\n"
        "def library() -> pathlib.Path:\n"
        "    return pathlib.Path(__file__).with_name('brought.so')\n"
    )
    about = tmp_path / "brought_library-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brought-library\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[{library.ENTRY_POINTS}]\ncu13 = brought_library:library\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "brought_library", raising=False)
    monkeypatch.delenv(library.VARIABLE, raising=False)
    return tmp_path / "brought.so"


def test_another_distributions_library_comes_first(brought: pathlib.Path) -> None:
    brought.write_bytes(b"")
    assert library.find() == brought


def test_the_variable_precedes_another_distribution(
    brought: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought.write_bytes(b"")
    monkeypatch.setenv(library.VARIABLE, str(brought.parent / "brought_library.py"))
    assert library.find() == brought.parent / "brought_library.py"


def test_a_distribution_without_its_library_is_named(brought: pathlib.Path) -> None:
    with pytest.raises(
        cw.CounterweightError,
        match=r"brought_library:library names .*brought\.so, which is no file",
    ):
        library.find()
    (brought.parent / "brought_library.py").write_text("raise OSError('damaged')\n")
    sys.modules.pop("brought_library")
    with pytest.raises(
        cw.CounterweightError, match="brought_library:library cannot be loaded: damaged"
    ):
        library.find()


LOADED_FIRST = """
import sys
order = sys.argv[1].split(",")
def grpc():
    import grpc
    import google.protobuf.struct_pb2 as pb
    assert pb.Struct(fields={"a": pb.Value(number_value=1)}).SerializeToString()
def torch():
    import torch
    assert torch.ones(2).sum() == 2
def local():
    from counterweight_rl.local import library
    library.load()
for name in order:
    globals()[name]()
import counterweight_rl as cw, numpy as np
ones = np.ones((2, 3), np.float32)
batch = dict(rollout_log_probs=-ones, old_log_probs=-ones, response_mask=ones, method="token_tis")
for target in ("local:", sys.argv[2], "local:"):
    with cw.Client(target) as client:
        assert client.correct(**batch).weights.sum() == 6
for name in order:
    globals()[name]()
"""


@pytest.mark.parametrize("order", ["grpc,torch,local", "local,torch,grpc", "torch,local,grpc"])
def test_beside_torch_and_grpc(server: ServerProcess, order: str) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-c", LOADED_FIRST, order, server.address]
    subprocess.run(command, check=True, timeout=120)


def test_torch_tensors(client: cw.Client) -> None:
    torch = pytest.importorskip("torch")
    batch: dict[str, Any] = {n: torch.from_numpy(a) for n, a in padded_batch(20, 100).items()}
    batch["response_mask"] = batch["response_mask"].bool()
    batch["old_log_probs"] = batch["old_log_probs"].to(torch.bfloat16)
    outputs = ["weights", "keep_mask", "token_reasons", "sequence_reasons"]
    with cw.Client("local:") as local:
        answer = local.correct(method="token_tis", outputs=outputs, **batch)
    assert_same(answer, client.correct(method="token_tis", outputs=outputs, **batch))


def test_policy_loss() -> None:
    torch = pytest.importorskip("torch")
    from counterweight_rl.torch import policy_loss_with_result
    from transports import LOSS

    batch: dict[str, Any] = {n: torch.from_numpy(a) for n, a in padded_batch(20, 100).items()}
    batch["current_log_probs"].requires_grad_()
    with cw.Client("local:") as local:
        loss, result = policy_loss_with_result(local, method=LOSS, **batch)
    loss.backward()
    torch.testing.assert_close(batch["current_log_probs"].grad, result.gradient, rtol=0, atol=0)


def test_writes_nothing_to_the_programs_stderr() -> None:
    """Protobuf reports text that is not UTF-8 there, unless that is switched off."""
    code = (
        "import ctypes\n"
        "from counterweight_rl.local import library as abi\n"
        "library, handle = abi.load(), ctypes.c_void_p()\n"
        "assert not library.cw_open(None, ctypes.byref(handle))\n"
        "text = b'\\x0a\\x02\\xff\\xfe'  # a request_id\n"
        "address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value\n"
        "request = abi.Request(struct_size=ctypes.sizeof(abi.Request))\n"
        "request.message = abi.Bytes(address, len(text))\n"
        "answer = ctypes.POINTER(abi.Answer)()\n"
        "print(library.cw_correct(handle, ctypes.byref(request), ctypes.byref(answer)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("3\n", "")
