"""Counterweight's library with its CUDA backend, for ``cw.Client("local:cuda")``.

It needs no import: `counterweight_rl` finds `library` by the entry point of this distribution.
"""

from __future__ import annotations

import pathlib


def library() -> pathlib.Path:
    """The file of the library, which also computes on the CPU."""
    return pathlib.Path(__file__).with_name("libcounterweight.so")
