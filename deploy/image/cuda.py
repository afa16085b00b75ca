"""CUDA's static runtime, which programs with the CUDA backend contain."""

from __future__ import annotations

import dataclasses
import json
import pathlib


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A version of it."""

    version: str
    url: str  # package URL
    license: bytes

    name = "nvidia-cuda-runtime"
    supplier = "Organization: NVIDIA"
    origin = "linked from CUDA's toolkit"

    def copyright(self) -> bytes:
        """Returns the text of the licence."""
        return self.license


def runtime(toolkit: pathlib.Path) -> Runtime:
    """Returns that of NVIDIA's packages (see .ci/cuda), or of an installed toolkit."""
    name = Runtime.name
    for about in toolkit.parents[1].glob("nvidia_cuda_runtime-*.dist-info"):
        version = about.name.removesuffix(".dist-info").partition("-")[2]
        text = (about / "licenses/License.txt").read_bytes()
        return Runtime(version, f"pkg:pypi/{name}@{version}", text)
    version = json.loads((toolkit / "version.json").read_text())["cuda_cudart"]["version"]
    text = (toolkit / "EULA.txt").read_bytes()
    return Runtime(version, f"pkg:generic/{name}@{version}", text)
