"""The peer's release that this process compares with: ``COUNTERWEIGHT_PEER=verl==0.9.1``.

Two releases of one package cannot be imported side by side, so each has a process of its own, and
a folder of its own in ``.venv-peers/releases``, which ``.ci/peers`` fills.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import stand_ins

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
VARIABLE = "COUNTERWEIGHT_PEER"
CHECKOUT_VARIABLE = "COUNTERWEIGHT_PEER_CHECKOUT"

# Packages that the compared modules import without using them.
_ABSENT = {
    "miles": ("ray", "httpx"),
    "openrlhf": ("deepspeed",),
    "skyrl": (
        *("ray", "skyrl_gym", "jaxtyping", "loguru", "torchdata"),
        # The client of inference engines, which a trainer's configuration imports.
        *("aiohttp", "orjson", "pybase64", "zstandard"),
    ),
    "tinker": ("pyqwest", "httpx", "orjson", "zstandard", "distro", "sniffio"),
    "trl": ("requests", "urllib3"),
    "verl": ("ray", "codetiming", "orjson", "PIL"),
    # These are cut (cut.py), but for AReaL's own tests.
    "areal": (
        *("uvloop", "hydra", "datasets", "numba", "colorlog", "aiohttp", "ray", "requests"),
        *("PIL", "aiofiles", "pynvml", "prettytable", "torchdata", "einops", "orjson"),
    ),
    "roll": (),
    "swift": (),
    # These have no release.
    "nemo_rl": ("ray", "hydra"),
    "prime_rl": ("beartype", "jaxtyping", "loguru", "wandb", "setproctitle"),
    "slime": ("megatron", "ray", "httpx", "sglang"),
}
# Modules of a peer that workers and loggers need.
_REPLACED = {
    "areal": ("areal.infra.platforms",),
    "miles": (
        "miles.utils.audit_utils.event_logger.logger",
        "miles.utils.audit_utils.event_logger.models",
    ),
    "nemo_rl": (
        *("nemo_rl.data.multimodal_utils", "nemo_rl.models.policy", "nemo_rl.utils.fastokens"),
        "nemo_rl.utils.logger",
    ),
}
# Packages that import engines which are not installed.
_HEADLESS = {
    "areal": ("areal", "areal.engine", "areal.engine.fsdp_utils", "areal.infra"),
    "openrlhf": ("openrlhf", "openrlhf.models"),
    "skyrl": (
        "skyrl",
        "skyrl.backends",
        "skyrl.backends.skyrl_train.utils",
        "skyrl.train.generators",
    ),
}
# Folders of a checkout that hold the peer's package; "." elsewhere.
_SOURCES = {"prime_rl": ("src", "packages/prime-rl-configs/src")}
# OmegaConf's parser of interpolations, which no test needs; it has no wheel.
stand_ins.install("antlr4")

# Packages with a name that is not their module's.
_MODULES = {
    "miles-rl": "miles",
    "ms-swift": "swift",
    "nemo-rl": "nemo_rl",
    "prime-rl": "prime_rl",
}

PACKAGE, _, RELEASE = os.environ.get(VARIABLE, "").partition("==")
PEER = _MODULES.get(PACKAGE, PACKAGE)


def is_at_least(release: str) -> bool:
    """Returns whether the peer's release is this one or a later one."""
    return _numbers(RELEASE) >= _numbers(release)


def activate(peer: str, folder: pathlib.Path) -> None:
    """Makes ``import peer`` find the copy in a folder, a release's or a checkout.

    Raises:
        FileNotFoundError: The folder does not hold the peer.
    """
    for source in _SOURCES.get(peer, (".",)):
        if not (folder / source / peer).is_dir():
            raise FileNotFoundError(
                f"{folder} has no {source}/{peer}; .ci/peers installs releases there"
            )
        sys.path.insert(0, str(folder / source))
    stand_ins.install(*_ABSENT[peer])
    if peer == "prime_rl":
        _replace_pydantic_config()
    stand_ins.replace(*_REPLACED.get(peer, ()))
    for package in _HEADLESS.get(peer, ()):
        stand_ins.skip_init(package, str(folder.joinpath(*package.split("."))))


def activate_release() -> None:
    """Makes ``import PEER`` find the release of the environment variable, or without one the
    checkout."""
    if PEER not in _ABSENT:
        raise LookupError(f"{VARIABLE} must be PEER==RELEASE, as .ci/peers sets it")
    activate(PEER, folder())


def folder() -> pathlib.Path:
    """Returns the folder of the environment variable's release, or without one the checkout.

    Raises:
        LookupError: Neither is set.
    """
    if RELEASE:
        return REPOSITORY / f".venv-peers/releases/{PACKAGE}-{RELEASE}"
    if CHECKOUT_VARIABLE not in os.environ:
        raise LookupError(f"{VARIABLE} must be PEER==RELEASE, as .ci/peers sets it")
    return pathlib.Path(os.environ[CHECKOUT_VARIABLE]).resolve()


def commit() -> str:
    """Returns eight digits of the checkout's commit; "" if it is no clone."""
    command = ["git", "-C", folder(), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def activate_checkout() -> None:
    """Makes ``import PEER`` find the checkout that ``run_suite`` was given, in Ray's workers too."""
    activate(PEER, pathlib.Path(os.environ[CHECKOUT_VARIABLE]).resolve())


def _replace_pydantic_config() -> None:
    """Makes pydantic's own models those of prime-rl's configurations."""
    import pydantic

    class BaseConfig(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")

    made: Any = ModuleType("pydantic_config")
    made.BaseConfig, made.cli = BaseConfig, None
    sys.modules["pydantic_config"] = made


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
