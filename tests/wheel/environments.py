"""Environments with wheels, and what their libraries answer."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import zipfile
from typing import Any

import counterweight_rl as cw
from conftest import REPOSITORY
from local_answers import BATCHES, assert_goldens
from transports import assert_same


def install(folder: pathlib.Path, *wheels: pathlib.Path) -> pathlib.Path:
    """Makes an environment with the wheels and what they bring; returns its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "--disable-pip-version-check", "--quiet", "install", *wheels]
    subprocess.run(pip, check=True, timeout=300)
    return folder / "bin"


def run(*words: object, **settings: Any) -> str:
    # Another folder than the checkout, where the library would be found too.
    apart = ("PYTHONPATH", "WHEEL", "ARM64_WHEEL", "CUDA_WHEEL", "COUNTERWEIGHT_LIBRARY")
    environment = {n: v for n, v in os.environ.items() if n not in apart}
    command = [str(word) for word in words]
    settings = {"timeout": 300, **settings}
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env=environment,
        **settings,
    )
    return done.stdout


def local_answers(installed: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """Answers of an environment's library."""
    path = folder / "pickle"
    run(installed / "python", REPOSITORY / "tests/e2e/local_answers.py", path)
    read: dict[str, Any] = pickle.loads(path.read_bytes())
    return read


def assert_answers(answers: dict[str, Any], tree: cw.Client) -> None:
    """Goldens and batches have the bytes of the checkout's library, and the same errors."""
    assert_goldens(answers, tree)
    for name, batch in BATCHES.items():
        assert_same(answers[name], tree.correct(**batch))


def assert_licences(wheel: pathlib.Path) -> None:
    """The licence of each part of library and server is in the wheel, and gRPC is new."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        bill = json.loads(archive.read(names["sboms/counterweight.cdx.json"]))
        parts = [(part["name"], part["version"]) for part in bill["components"]]
        assert {
            "libgrpc-dev",
            "libgrpc++-dev",
            "libssl-dev",
            "libprotobuf-dev",
            "libabsl-dev",
            "libc-ares-dev",
            "libre2-dev",
            "libunwind",
        } <= {name for name, _ in parts}
        for name, version in parts:
            assert len(archive.read(names[f"licenses/third_party/{name}-{version}"])) > 200
            if name.startswith("libgrpc"):
                assert tuple(map(int, re.findall(r"\d+", version)[:2])) >= (1, 83)
        assert b"Apache License" in archive.read(names["licenses/LICENSE"])
        assert not [name for name in archive.namelist() if "test" in name]
