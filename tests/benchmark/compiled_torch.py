"""The work of eager_torch.py under torch.compile, on one thread.

    .venv-torch/bin/python tests/benchmark/compiled_torch.py

It avoids boolean indexing, which breaks the graph, and leaves metrics as tensors: the best case for
these formulas in a trainer. Prints a JSON object with a row for each length.
"""

from __future__ import annotations

import json
import sys

import eager_torch
import torch
from torch import Tensor

LENGTHS = (100, 1_024, 10_000)


def largest(x: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid, x, -torch.inf).amax()


def smallest(x: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid, x, torch.inf).amin()


def main() -> None:
    eager_torch.number = lambda x: x
    eager_torch.largest = largest
    eager_torch.smallest = smallest
    eager_torch.rows_with_tokens = lambda x, valid: x
    rows = []
    for length in LENGTHS:
        # Each shape is compiled anew; the first call, which compiles, is not counted.
        torch.compiler.reset()
        work = torch.compile(eager_torch.correct, dynamic=False)
        rows.append(eager_torch.time_shape(1_000_000, length, 1, work))
    json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
