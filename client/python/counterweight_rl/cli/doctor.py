"""Examines what is installed, and whether it works."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from counterweight_rl._version import __version__
from counterweight_rl.cli import display
from counterweight_rl.cli.problems import FailureError
from counterweight_rl.cli.programs import find_server
from counterweight_rl.client import Client
from counterweight_rl.errors import CounterweightError
from counterweight_rl.local import library

# Distributions with what they are for; the first is always needed.
_PACKAGES = (
    ("numpy", "always needed"),
    ("grpcio", "for clients of a server: the extra [remote]"),
    ("protobuf", "the same"),
    ("torch", "for tensors and losses with a gradient"),
    ("click", "for this command line: the extra [cli]"),
    ("rich", "the same"),
    ("pyarrow", "for Parquet files: the extra [cli]"),
    ("PyYAML", "for --block with YAML: the extra [cli]"),
    ("matplotlib", "for pictures: the extra [cli]"),
)
_SECONDS = 20
_NAME_BYTES = 256


@dataclass(frozen=True)
class Finding:
    """A line of the report.

    Attributes:
        name: The part.
        state: "ok", "missing" (which some uses need) or "broken" (exit code 1).
        text: Version, place, or reason.
    """

    name: str
    state: str
    text: str


def examine(target: str | None, connect: Callable[[str], Client]) -> Iterator[Finding]:
    """Looks at the parts one by one; ``target`` is a server to check too."""
    yield Finding("counterweight-rl", "ok", f"{__version__}, Python {platform.python_version()}")
    for name, purpose in _PACKAGES:
        try:
            yield Finding(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "missing", purpose)
    cores = len(os.sched_getaffinity(0))
    yield Finding(
        "CPU", "ok", f"{_processor()}, {cores} of {os.cpu_count()} cores for this process"
    )
    yield _library()
    yield _server()
    yield from _gpus()
    yield _cuda()
    if target is not None:
        yield _asked(target, connect)


def _processor() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _library() -> Finding:
    """Whether ``local:`` finds its library and corrects a token with it."""
    one = np.zeros((1, 1), np.float32)
    try:
        place = library.find()
        with Client("local:", timeout=_SECONDS) as client:
            info = client.server_info()
            client.correct(
                rollout_log_probs=one,
                old_log_probs=one,
                response_mask=np.ones((1, 1), np.uint8),
                method="token_tis",
            )
    except CounterweightError as error:
        return Finding("library (local:)", "broken", str(error))
    about = f"{info.version}, numerics version {info.numerics_version}"
    return Finding(
        "library (local:)", "ok", f"{about}, kernels for {info.instruction_set}, {place}"
    )


def _server() -> Finding:
    try:
        program = find_server()
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_SECONDS
        )
    except (FailureError, OSError, subprocess.TimeoutExpired) as error:
        return Finding("server (serve)", "broken", str(error))
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return Finding("server (serve)", "broken", f"{program} does not run: {said}")
    version = done.stdout.strip().removeprefix("counterweight-server ")
    return Finding("server (serve)", "ok", f"{version}, {program}")


def _gpus() -> Iterator[Finding]:
    """Reads the version from NVIDIA's driver, without any CUDA library."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Finding("GPU driver", "missing", "no libcuda.so.1: NVIDIA's driver is not installed")
        return
    status = driver.cuInit(0)
    if status != 0:
        yield Finding("GPU driver", "missing", f"it is installed, but cuInit fails with {status}")
        return
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    yield Finding("GPU driver", "ok", f"{_driver_release()}for up to {cuda}")
    for index in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(name, _NAME_BYTES, device)
        yield Finding(f"GPU {index}", "ok", name.value.decode(errors="replace"))


def _driver_release() -> str:
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((f"{word}, " for word in words if word[:1].isdigit() and "." in word), "")


def _cuda() -> Finding:
    """Whether ``local:cuda`` works, or why not, in the library's own words."""
    try:
        with Client("local:cuda", timeout=_SECONDS) as client:
            devices = ", ".join(device.name for device in client.server_info().devices)
    except CounterweightError as error:
        why = str(error)
        if "no CUDA backend" in why and "x86-64 only" not in why:
            why += "; the wheel counterweight-rl-cu13 brings a library that has it"
        return Finding("CUDA (local:cuda)", "missing", why)
    return Finding("CUDA (local:cuda)", "ok", devices)


def _asked(target: str, connect: Callable[[str], Client]) -> Finding:
    try:
        with connect(target) as client:
            info = client.server_info()
    except (CounterweightError, ImportError, ValueError) as error:
        return Finding(target, "broken", str(error))
    about = f"{info.version}, numerics version {info.numerics_version}, {info.backend}"
    return Finding(target, "ok", f"{about}, {info.threads} threads")


def report(where: Console, findings: list[Finding], *, as_json: bool) -> int:
    """Prints the findings; returns the exit code."""
    if as_json:
        print(json.dumps([asdict(each) for each in findings], indent=2))
    else:
        table = Table(show_header=False, show_edge=False, pad_edge=False)
        styles: dict[str, Any] = {"ok": "green", "missing": "yellow", "broken": "red"}
        table.add_column("part", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("text", overflow="fold")
        for each in findings:
            table.add_row(each.name, each.state, each.text, style=styles[each.state])
        display.print_table(where, "", table)
    return int(any(each.state == "broken" for each in findings))
