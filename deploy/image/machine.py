"""The machine that runs what is packed: this one, or an arm64 of the same Debian, whose files are in a folder."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import platform
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ROOT_OF_ARM64 = REPOSITORY / "deploy/release/arm64_root"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A processor with its Debian."""

    architecture: str  # by Debian's and OCI's names: amd64, arm64
    root: pathlib.Path  # of its files
    run: tuple[str, ...]  # begins the command of its programs
    ldd: tuple[str, ...]  # begins the command that prints which libraries a file loads
    strip: str
    server: pathlib.Path  # of a release


@functools.cache
def here() -> Machine:
    """Returns this machine."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    server = REPOSITORY / "build/server/linked/counterweight-server"
    return Machine(architecture, pathlib.Path("/"), (), ("ldd",), "strip", server)


@functools.cache
def arm64() -> Machine:
    """Returns an arm64 in qemu; raises LookupError where its packages cannot be downloaded."""
    if here().architecture == "arm64":
        return here()
    made = subprocess.run([ROOT_OF_ARM64], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise LookupError(made.stderr.strip())
    root = pathlib.Path(made.stdout.strip())
    emulated = ("qemu-aarch64", "-L", str(root))
    ldd = (*emulated, str(root / "lib/ld-linux-aarch64.so.1"), "--list")
    server = REPOSITORY / "build/server_arm64/linked/counterweight-server"
    return Machine("arm64", root, emulated, ldd, "aarch64-linux-gnu-strip", server)
