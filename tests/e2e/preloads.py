"""Libraries in C that change what the server finds in its process."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest


def preload(source: str, folder: pathlib.Path) -> dict[str, str]:
    """Compiles ``source``; returns the environment of a process that has it."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    text, library = folder / "preload.c", folder / "preload.so"
    text.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, text, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}
