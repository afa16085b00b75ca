"""Computes torch CUDA tensors in this process, in their stream, and compares with the CPU's answers.

    COUNTERWEIGHT_LIBRARY=build/cuda/libcounterweight.so python3 tests/e2e/compare_local_cuda.py

Answers of "local:cuda" must have the bytes of "local:", in the current stream, for submitted calls,
in destinations, and as gradients of the torch operator. It needs a GPU, torch for it and numpy. Exit
codes: 0 success, 1 a failure, 2 no comparison was possible.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from server_process import REPOSITORY

try:
    import counterweight_rl as cw
except ImportError:
    sys.path.insert(0, str(REPOSITORY / "client/python"))
    import counterweight_rl as cw
from batches import padded_batch
from compare_cuda_tensors import (
    DEVICE,
    OUTPUTS,
    batches,
    check_destinations,
    check_streams,
    on_device,
    on_host,
    run,
)
from prepared import by_plan
from transports import LOSS, assert_same

try:
    import torch
    from counterweight_rl.torch_operator import PolicyLossOperator
except ImportError:
    sys.exit("compare_local_cuda: needs torch")

KIBIBYTE = 1 << 10
DRIFT = ("rollout_log_probs", "old_log_probs", "response_mask")


class Engines:
    """The engine of this process on the GPU, and on the CPU."""

    def __init__(self) -> None:
        self.in_place = cw.Client("local:cuda")
        self.on_cpu = cw.Client("local:")

    def close(self) -> None:
        self.in_place.close()
        self.on_cpu.close()


def check_answers(engines: Engines) -> None:
    for name, batch in batches():
        for method in (LOSS, "token_tis"):
            request = {**batch, "method": method}
            outputs = OUTPUTS if method is LOSS else OUTPUTS[:4]
            expected = engines.on_cpu.correct(**request, outputs=outputs)
            try:
                for _ in range(3):
                    result = engines.in_place.correct(**on_device(request), outputs=outputs)
                    assert_same(on_host(result, expected), expected)
                assert by_plan(result), "the third call went the whole way"
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


def check_compiled_operator(engines: Engines) -> None:
    """A compiled step on the GPU has the CPU's loss and gradient."""
    batch = padded_batch(32, 512, seed=13)
    found = []
    for client, device in ((engines.on_cpu, "cpu"), (engines.in_place, DEVICE)):
        operator = PolicyLossOperator(client, method="token_tis_ppo_clip")
        tensors = {n: torch.from_numpy(a).to(device) for n, a in batch.items()}
        current = tensors.pop("current_log_probs").requires_grad_()

        @torch.compile(fullgraph=True)
        def step(current: Any, tensors: Any, operator: Any = operator) -> Any:
            return operator(current_log_probs=current, **tensors)

        loss = step(current, tensors)
        loss.backward()
        found.append((loss.detach().cpu(), current.grad.cpu()))
    (loss, gradient), (loss_there, gradient_there) = found
    assert torch.equal(loss, loss_there), f"losses {loss} and {loss_there}"
    assert torch.equal(gradient, gradient_there), "gradients differ"


def time_calls(engines: Engines) -> None:
    """Micro-batches and a large batch, whole calls: what a trainer waits for."""
    for rows, length in ((8, 1024), (32, 1024), (128, 1024), (8192, 8192)):
        some = on_device(padded_batch(min(rows, 128), length, seed=5))
        tensors = {name: tensor.repeat(max(1, rows // 128), 1) for name, tensor in some.items()}
        drift = {name: tensors[name] for name in DRIFT}
        for method, inputs in (("token_tis", drift), ("token_tis_ppo_clip", tensors)):
            seconds = []
            for _ in range(7 if rows > 128 else 200):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                result = engines.in_place.correct(**inputs, method=method)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - begin)
            print(
                f"  {method:18} {rows * length / KIBIBYTE:6.0f} Ki tokens: p50 "
                f"{statistics.median(seconds) * 1e6:8.0f} us, least {min(seconds) * 1e6:8.0f} us, "
                f"of which computed {result.timing.compute_seconds * 1e6:.0f} us"
            )


def main() -> int:
    if not torch.cuda.is_available():
        print("compare_local_cuda: needs a GPU", file=sys.stderr)
        return 2
    checks: list[Callable[[Any], None]] = [
        check_answers,
        check_streams,
        check_destinations,
        check_compiled_operator,
        time_calls,
    ]
    with closing(Engines()) as engines:
        print(f"compare_local_cuda: {torch.cuda.get_device_name()}, torch {torch.__version__}")
        return run(checks, engines)


if __name__ == "__main__":
    sys.exit(main())
