"""Compares --backend=cuda with --backend=cpu over the wire, byte for byte.

    COUNTERWEIGHT_SERVER=build/cuda/counterweight-server python3 tests/e2e/compare_backends.py

It sends every golden and every named method, each as one message, then batches in chunks; refusals
must have the same text. Flags go to the CUDA server (--devices=all); --large adds batches of
millions of tokens. It needs a CUDA device that the server can use, numpy, grpcio and protobuf. Exit
codes: 0 all equal, 1 a difference, 2 no comparison was possible.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess, binary

try:
    import counterweight_rl as cw
except ImportError:
    sys.path.insert(0, str(REPOSITORY / "client/python"))
    import counterweight_rl as cw
import grpc
import numpy as np
from batches import packed, padded_batch
from counterweight_rl import calls
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl.transport import unary
from counterweight_rl.transport.channel import SERVICE, connect
from counterweight_rl.transport.target import read_server
from goldens import GOLDENS, SYSTEMS, arguments
from transports import ARRAYS, LOSS

# A name, and the arguments of Client.correct.
Case = tuple[str, dict[str, Any]]
# Bytes, or the text of an error.
Answer = bytes | tuple[str, ...]
REFUSED = grpc.StatusCode.INVALID_ARGUMENT.name
DETAILS = "grpc-status-details-bin"


def golden_cases(system: str) -> Iterator[Case]:
    for name, golden in GOLDENS.items():
        if name.startswith(f"{system}/"):
            yield name, arguments(golden)


def method_cases(methods: Iterable[str]) -> Iterator[Case]:
    """Yields padded and packed batches in turn, with rows of several segments and of none, and NaN
    at masked positions."""
    batches = [padded_batch(5, 300, seed=1), packed(padded_batch(9, 150, spread=1.0, seed=2))]
    for batch in batches:
        # Some log ratios are 0, some are large.
        batch["ref_log_probs"] = batch["old_log_probs"] * np.float32(1.01)
    for i, method in enumerate(methods):
        yield f"method {method}", {"method": method, **batches[i % len(batches)]}


def batch_cases(large: bool) -> Iterator[Case]:
    shapes = {"wide": (3, 5000), "none": (0, 5), "one": (1, 1)}
    if large:
        shapes |= {"long": (2, 1 << 20), "many": (100_000, 40), "usual": (512, 8192)}
    for name, (rows, length) in shapes.items():
        batch = padded_batch(max(rows, 1), length, seed=rows)
        if rows == 0:
            batch = {role: array[:0] for role, array in batch.items()}
        yield name, {"method": LOSS, "outputs": (*ARRAYS, "loss"), **batch}
        yield (
            f"{name} as halves",
            {
                "method": LOSS,
                "outputs": (*ARRAYS, "loss"),
                **{
                    r: a.astype(np.float16) if a.dtype == np.float32 else a
                    for r, a in batch.items()
                },
            },
        )


def same_for_all(response: service_pb2.CorrectResponse, backend: str) -> bytes:
    """Returns the answer without the fields that differ between backends."""
    if response.backend != backend:
        raise ValueError(f"asked {backend} and {response.backend} answered")
    response.ClearField("timing")
    response.ClearField("backend")
    return response.SerializeToString(deterministic=True)


def ask_by_message(address: str, backend: str) -> Callable[[dict[str, Any]], Answer]:
    channel = connect(grpc, read_server(address), None, direct=True)
    rpc = channel.unary_unary(SERVICE + "Correct")

    def ask(asked: dict[str, Any]) -> Answer:
        call = calls.correct(request_id="compared", **asked)
        assert call.correction is not None
        try:
            answer = rpc(unary.encode(call.correction), timeout=DEADLINE_SECONDS)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            return error.code().name, error.details() or "", repr(trailers.get(DETAILS))
        return same_for_all(service_pb2.CorrectResponse.FromString(answer), backend)

    return ask


def ask_in_chunks(address: str, backend: str) -> Callable[[dict[str, Any]], Answer]:
    client = cw.Client(address, transport="stream", timeout=DEADLINE_SECONDS)

    def ask(asked: dict[str, Any]) -> Answer:
        try:
            result = client.correct(request_id="compared", **asked)
        except cw.CounterweightError as error:
            return error.code.name, str(error)
        if result.backend != backend:
            raise ValueError(f"asked {backend} and {result.backend} answered")
        parts = [f"{name}={getattr(result, name)!r}" for name in ("loss", "metrics", "rules")]
        arrays = (getattr(result, name) for name in ARRAYS)
        return b"|".join(
            [*(part.encode() for part in parts), *(a.tobytes() for a in arrays if a is not None)]
        )

    return ask


def first_difference(ours: Answer, theirs: Answer) -> str:
    if not (isinstance(ours, bytes) and isinstance(theirs, bytes)):
        return f"cuda {describe(ours)}, cpu {describe(theirs)}"
    shared = min(len(ours), len(theirs))
    at = next((i for i in range(shared) if ours[i] != theirs[i]), shared)
    return f"byte {at} of {len(ours)} and {len(theirs)}"


def describe(answer: Answer) -> str:
    return "answers" if isinstance(answer, bytes) else f"refuses: {answer[0]}: {answer[1]}"


class Comparison:
    """Two servers, and the results of their comparison."""

    def __init__(self, cuda: ServerProcess, cpu: ServerProcess) -> None:
        self.cuda, self.cpu = cuda, cpu
        self.answered = self.refused = 0
        self.differences: list[str] = []

    def methods(self) -> list[str]:
        with cw.Client(self.cpu.address) as client:
            return [method.name for method in client.list_methods()]

    def run(self, cases: Iterable[Case], *, chunks: bool = False) -> None:
        how = ask_in_chunks if chunks else ask_by_message
        ask_cuda, ask_cpu = how(self.cuda.address, "cuda"), how(self.cpu.address, "cpu")
        for name, asked in cases:
            ours, theirs = ask_cuda(asked), ask_cpu(asked)
            # A failure of a server is not a refusal.
            failed = isinstance(ours, tuple) and ours[0] != REFUSED
            if ours != theirs or failed:
                self.differences.append(f"{name}: {first_difference(ours, theirs)}")
            elif isinstance(ours, bytes):
                self.answered += 1
            else:
                self.refused += 1


def main(arguments: list[str]) -> int:
    large = "--large" in arguments
    flags = [argument for argument in arguments if argument != "--large"]
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            cuda = ServerProcess("--backend=cuda", *flags)
            stack.callback(cuda.stop)
            cpu = ServerProcess("--backend=cpu")
            stack.callback(cpu.stop)
        except (OSError, RuntimeError) as error:
            print(f"compare_backends: {binary()}: {error}", file=sys.stderr)
            return 2
        comparison = Comparison(cuda, cpu)
        with cw.Client(cuda.address) as client:
            devices = ", ".join(device.name for device in client.server_info().devices)
        for system in SYSTEMS:
            comparison.run(golden_cases(system))
        comparison.run(method_cases(comparison.methods()))
        comparison.run(batch_cases(large), chunks=True)
    for difference in comparison.differences:
        print(f"compare_backends: differs: {difference}")
    print(
        f"compare_backends: {devices} against the CPU: {comparison.answered} answers and "
        f"{comparison.refused} refusals equal, {len(comparison.differences)} different, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
