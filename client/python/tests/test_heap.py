"""Freed buffers serve the next call."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from counterweight_rl.transport.heap import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        # A message, gRPC's copy, the answer and its copy.
        buffers = [b"x" * size for size in (2_359_000, 2_359_000, 1_311_000, 1_311_000)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_freed_memory()
faults()
print(first, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")
def test_a_call_takes_the_memory_of_the_last_one() -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], env=plain, capture_output=True, text=True, check=True
    )
    without, kept = map(int, done.stdout.split())
    assert kept < 500 < without
