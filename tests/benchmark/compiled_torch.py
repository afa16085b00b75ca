"""The works of torch_works.py under torch.compile, on one thread, by instruction set.

    .venv-torch/bin/python tests/benchmark/compiled_torch.py

v3 is torch held to AVX2, v4 torch with AVX-512, where the machine has it. Prints a JSON object with
a row for each work, instruction set and length: the least of several repetitions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import eager_torch
import torch
from torch import Tensor
from torch_works import WHOLE_GRAPH, WORKS
from work_parts import Work

TOKENS = 1_000_000
LENGTHS = (100, 1_024, 10_000)
REPETITIONS = 15
# glibc otherwise returns the memory of freed tensors to the system, and torch's time doubles in
# calls that fault these pages in again. Kept memory is torch's best case.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
# The options hold for compiled code, the variable for operators that torch calls, such as cumsum.
AVX2_CODE = {"cpp.simdlen": 256, "cpp.march": "x86-64-v3"}
AVX2_LIBRARY = {"ATEN_CPU_CAPABILITY": "avx2"}

Json = dict[str, Any]


def instruction_sets() -> list[str]:
    capability = torch.backends.cpu.get_cpu_capability()
    if capability.startswith("AVX512"):
        return ["v3", "v4"]
    return ["v3"] if capability == "AVX2" else []


def random_batch(length: int) -> dict[str, Tensor]:
    """The distributions of bench_batch.cc."""
    old, rollout, mask = eager_torch.random_batch(TOKENS, length)
    current = old + 0.1 * torch.randn(old.shape)
    advantages = torch.randn(old.shape)
    return {
        "old": old,
        "rollout": rollout,
        "mask": mask,
        "current": current,
        "advantages": advantages,
    }


def time_work(work: Work, isa: str, batch: dict[str, Tensor]) -> float:
    """Nanoseconds of CPU time per token."""
    # Each shape is compiled anew; the first call, which compiles, is not counted.
    torch.compiler.reset()
    options = AVX2_CODE if isa == "v3" else None
    compiled = torch.compile(work.answer, fullgraph=True, dynamic=False, options=options)
    inputs = [batch[name] for name in work.inputs]
    compiled(*inputs)
    seconds = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        compiled(*inputs)
        seconds.append(time.process_time() - start)
    return 1e9 * min(seconds) / batch["mask"].numel()


def time_all(isa: str) -> list[Json]:
    torch.set_num_threads(1)
    for name, replacement in WHOLE_GRAPH.items():
        setattr(eager_torch, name, replacement)
    rows = []
    for length in LENGTHS:
        batch = random_batch(length)
        for work in WORKS:
            row = {"method": work.method, "metrics": work.metrics, "isa": isa}
            row |= {"tokens": TOKENS, "length": length}
            rows.append({**row, "cpu_ns_per_token": time_work(work, isa, batch)})
    return rows


def rows_of_process(isa: str) -> list[Json]:
    """Times one instruction set in a process with the settings in its environment."""
    library = AVX2_LIBRARY if isa == "v3" else {}
    done = subprocess.run(
        [sys.executable, __file__, isa],
        env={**os.environ, **KEPT_MEMORY, **library},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows: list[Json] = json.loads(done.stdout)
    return rows


def main() -> None:
    if len(sys.argv) > 1:
        json.dump(time_all(sys.argv[1]), sys.stdout)
        return
    rows = [row for isa in instruction_sets() for row in rows_of_process(isa)]
    json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
