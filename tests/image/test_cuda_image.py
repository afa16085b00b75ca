"""The image with CUDA: the bill names NVIDIA's runtime, its licence is in the image, and containers request the driver."""

from __future__ import annotations

import json
import pathlib

import layers
import pytest
from conftest import REPOSITORY, pack

TOOLKIT = REPOSITORY / "build/cuda-toolkit/.lock-hash"

pytestmark = [
    pytest.mark.server_only,
    pytest.mark.skipif(not TOOLKIT.is_file(), reason="CUDA=1 make build fetches the toolkit"),
]


def test_it_names_the_runtime_and_requests_the_driver(tmp_path: pathlib.Path) -> None:
    said = pack("--variant=cuda", f"--out={tmp_path}")
    assert "-cuda@sha256:" in said
    layout = tmp_path / "oci"
    config = json.loads(layers.blob(layout, layers.manifest(layout)["config"]))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in config["config"]["Env"]
    bill = json.loads((tmp_path / "sbom.spdx.json").read_text())
    (runtime,) = [one for one in bill["packages"] if one["name"] == "nvidia-cuda-runtime"]
    assert runtime["supplier"] == "Organization: NVIDIA"
    assert runtime["versionInfo"].startswith("13.")
    (link,) = [
        one for one in bill["relationships"] if one["relatedSpdxElement"] == runtime["SPDXID"]
    ]
    assert link["relationshipType"] == "STATIC_LINK"
    tree = tmp_path / "tree"
    tree.mkdir()
    layers.unpack(layout, tree)
    text = (tree / "usr/share/doc/nvidia-cuda-runtime/copyright").read_text()
    assert "NVIDIA" in text
    assert len(text) > 10_000
