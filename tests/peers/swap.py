"""A pytest plugin that runs a peer's own tests with ``counterweight_rl.compat`` in place of its code.

``tests/peers/run_suite PEER CHECKOUT`` sets the environment and names the tests. After the tests
are collected, every module of the checkout that holds one of the functions gets ours instead.
"""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import releases

CHECKOUT = pathlib.Path(os.environ[releases.CHECKOUT_VARIABLE]).resolve()

releases.activate_checkout()

import counterweight_rl as cw  # noqa: E402
from counterweight_rl import compat  # noqa: E402
from counterweight_rl.compat import _releases  # noqa: E402
from server_process import ServerProcess  # noqa: E402

# The files that define compat's functions, by peer.
SOURCES = {
    "areal": ("areal/utils/functional/functional.py",),
    "miles": (
        "miles/backends/training_utils/loss_hub/math_utils.py",
        "miles/backends/training_utils/loss_hub/losses.py",
        "miles/backends/training_utils/loss_hub/corrections.py",
    ),
    "nemo_rl": ("nemo_rl/algorithms/loss/loss_functions.py",),
    "prime_rl": ("src/prime_rl/trainer/rl/loss.py",),
    "slime": ("slime/utils/ppo_utils.py", "slime/backends/megatron_utils/loss.py"),
    "openrlhf": ("openrlhf/models/loss.py",),
    "skyrl": ("skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py",),
    "trl": ("trl/trainer/grpo_trainer.py",),
    "verl": ("verl/trainer/ppo/rollout_corr_helper.py", "verl/trainer/ppo/core_algos.py"),
}

# Version files of a checkout that is not installed.
VERSION_FILES = ("version.txt", "VERSION", f"{releases.PEER}/version/version")


def _release_of_checkout() -> str | None:
    for name in VERSION_FILES:
        if (CHECKOUT / name).is_file():
            return (CHECKOUT / name).read_text().strip()
    # An installed release that brings its tests.
    for folder in CHECKOUT.glob(f"{releases.PEER}-*.dist-info"):
        return folder.name.removesuffix(".dist-info").partition("-")[2]
    return None


_releases._installed = lambda _: _release_of_checkout()

_running = ""
_run: set[str] = set()
_reached: set[str] = set()


def pytest_runtest_logstart(nodeid: str) -> None:
    global _running
    _running = nodeid
    _run.add(nodeid)


@pytest.fixture(scope="session", autouse=True)
def counterweight_service() -> Iterator[None]:
    """compat calls a server of this session's own."""
    server = ServerProcess()
    try:
        with cw.Client(server.address) as client:
            compat.use(client)
            yield
    finally:
        compat.use(None)
        server.stop()


def pytest_collection_finish() -> None:
    swapped = 0
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and CHECKOUT in pathlib.Path(file).resolve().parents:
            swapped += _swap(vars(module))
    assert swapped, f"no module of {CHECKOUT} holds what compat has"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(
        f"counterweight_rl.compat answered in {len(_reached)} of {len(_run)} tests"
    )


def _swap(names: dict[str, Any]) -> int:
    swapped = 0
    for name, value in list(names.items()):
        if isinstance(value, dict) and str(name).endswith("REGISTRY"):
            swapped += _swap(value)
        elif inspect.isclass(value) and value.__name__ == "GRPOTrainer" and _is_peers(value):
            mask = staticmethod(_counted(_ours()["get_off_policy_mask"]))
            value.get_off_policy_mask = mask  # type: ignore[attr-defined]
            swapped += 1
        elif _is_peers(value) and value.__name__ in _ours():
            names[name] = _ours()[value.__name__]
            swapped += 1
    return swapped


def _is_peers(value: Any) -> bool:
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return False
    try:
        file = inspect.getsourcefile(inspect.unwrap(value))
    except (OSError, TypeError):
        return False
    files = [CHECKOUT / source for source in SOURCES[releases.PEER]]
    return file is not None and pathlib.Path(file).resolve() in files


@functools.cache
def _ours() -> dict[str, Any]:
    import importlib

    module = importlib.import_module(f"counterweight_rl.compat.{releases.PEER}")
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    counted: dict[str, Any] = {
        name: _counted(value)
        for name, value in public.items()
        if inspect.isfunction(value) and value.__module__.startswith("counterweight_rl.compat")
    }
    for name, method in (("PolicyLoss", "forward"), ("ClippedPGLossFn", "__call__")):
        if name in public:
            own = {method: _counted(getattr(public[name], method))}
            counted[name] = type(name, (public[name],), own)
    return counted


def _counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _reached.add(_running)
        return function(*args, **kwargs)

    return call
