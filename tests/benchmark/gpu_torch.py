"""The works of gpu_bench in torch on the same device: eager, and compiled by torch.compile.

    python3 tests/benchmark/gpu_torch.py [--device=cuda] [--tokens=67108864] [--budget=240]

Prints JSON lines for gpu_table.py. The formulas are those of eager_torch.py, but metrics stay on
the device, so that torch need not wait for them. Rows are padded to one length, and torch reuses
allocated memory: both are torch's best case. Device events give best and median times, after runs
that warm up and compile.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import eager_torch
import torch
from eager_torch import masked_mean
from headline import UPPER
from torch import Tensor
from torch_works import ppo_loss, ppo_terms

LENGTH = 4096  # as in bench_kernels.cc, and the lengths and sizes below too
LENGTHS = (128, 512, 2048, 8192, 32_768, 131_072)
SIZES = tuple(1 << n for n in (16, 19, 22, 25, 28))
WARM_UPS, LEAST, MOST = 3, 5, 20
SECONDS_OF_REPETITIONS = 1.0

Batch = dict[str, Tensor]


def weights_alone(b: Batch) -> Any:
    """The minimal work for weights and a keep mask: no metrics."""
    ratio = torch.exp((b["old"] - b["rollout"]).clamp(-eager_torch.CLAMP, eager_torch.CLAMP))
    return ratio.clamp(max=UPPER) * b["mask"], b["mask"].to(torch.uint8)


def token_tis(b: Batch) -> Any:
    weights, metrics = eager_torch.importance_weights(b["old"] - b["rollout"], b["mask"])
    metrics.update(eager_torch.off_policy(b["old"], b["rollout"], b["mask"]))
    return weights, b["mask"].to(torch.uint8), metrics


def three_rules(b: Batch) -> Any:
    weights, keep, metrics = eager_torch.correct(b["old"], b["rollout"], b["mask"])
    return weights, keep.to(torch.uint8), metrics


def ppo_loss_alone(current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Any:
    return masked_mean(ppo_terms(current, old, advantages).values, mask), {}


def with_gradient(loss_of: Callable[..., Any]) -> Callable[[Batch], Any]:
    def run(b: Batch) -> Any:
        loss, metrics = loss_of(b["current"], b["old"], b["advantages"], b["mask"])
        (gradient,) = torch.autograd.grad(loss, b["current"])
        return loss, gradient, b["mask"].to(torch.uint8), metrics

    return run


def works(compiled: bool) -> Iterator[tuple[str, Callable[[Batch], Any]]]:
    def made(f: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(f, dynamic=False) if compiled else f

    yield "token_tis", made(token_tis)
    yield "ppo_clip", with_gradient(made(ppo_loss))
    yield "token_tis+3_rules", made(three_rules)
    yield "token_tis, no metrics", made(weights_alone)
    yield "ppo_clip, no metrics", with_gradient(made(ppo_loss_alone))


def random_batch(device: str, tokens: int, length: int) -> Batch:
    """The distributions of bench_batch.cc."""
    torch.manual_seed(1)
    shape = (tokens // length, length)

    def near(x: Tensor) -> Tensor:
        return x + 0.1 * torch.randn(shape, device=device)

    rollout = torch.empty(shape, device=device).exponential_().neg_()
    old = near(rollout)
    mask = (torch.rand(shape, device=device) < 0.9).float()
    current = near(old).requires_grad_()
    advantages = torch.randn(shape, device=device)
    return {
        "rollout": rollout,
        "old": old,
        "mask": mask,
        "current": current,
        "advantages": advantages,
    }


def seconds_of(work: Callable[[], Any], device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    start_event, stop_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start_event.record()
    work()
    stop_event.record()
    stop_event.synchronize()
    return start_event.elapsed_time(stop_event) * 1e-3


def measure(work: Callable[[], Any], device: str) -> list[float]:
    for _ in range(WARM_UPS):
        seconds_of(work, device)
    seconds: list[float] = []
    while len(seconds) < LEAST or (len(seconds) < MOST and sum(seconds) < SECONDS_OF_REPETITIONS):
        seconds.append(seconds_of(work, device))
    return seconds


class Run:
    def __init__(self, device: str, budget: float) -> None:
        self.device = device
        self.ends = time.monotonic() + budget
        self.eager_failed = False

    def time(self, table: str, tokens: int, length: int, compiled: bool) -> None:
        """Prints one line for each work, or one that the time is used up."""
        batch: Batch = {}
        for name, work in works(compiled):
            line: dict[str, Any] = {
                "part": "torch",
                "table": table,
                "work": name,
                "variant": "compiled" if compiled else "eager",
                "tokens": tokens,
                "length": length,
            }
            if time.monotonic() > self.ends:
                line["error"] = "no time left"
            else:
                try:
                    batch = batch or random_batch(self.device, tokens, length)
                    seconds = measure(functools.partial(work, batch), self.device)
                    line |= {"best": min(seconds), "median": statistics.median(seconds)}
                # torch.compile fails in many ways: each is a result.
                except Exception as error:
                    self.eager_failed |= not compiled
                    line["error"] = (str(error).splitlines() or [type(error).__name__])[0][:200]
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=1 << 26)
    parser.add_argument("--most", type=int, default=1 << 28)
    parser.add_argument("--budget", type=float, default=240, help="seconds for everything")
    arguments = parser.parse_args()
    eager_torch.number = lambda x: x
    where = "CPU"
    if arguments.device != "cpu":
        if not torch.cuda.is_available():
            sys.exit("gpu_torch: torch sees no GPU")
        where = torch.cuda.get_device_name()
    print(json.dumps({"part": "torch_version", "torch": torch.__version__, "device": where}))

    run = Run(arguments.device, arguments.budget)
    tokens = arguments.tokens
    run.time("methods", tokens, LENGTH, compiled=False)
    run.time("methods", tokens, LENGTH, compiled=True)
    for length in LENGTHS:
        run.time("lengths", tokens, length, compiled=False)
    for size in SIZES:
        if size <= arguments.most:
            run.time("sizes", size, LENGTH, compiled=False)
    # Each shape is compiled anew, so these are last.
    for length in LENGTHS:
        torch._dynamo.reset()
        run.time("lengths", tokens, length, compiled=True)
    sys.exit(int(run.eager_failed))


if __name__ == "__main__":
    main()
