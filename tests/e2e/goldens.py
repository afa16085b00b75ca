"""Reads the files of tests/golden by their README."""

from __future__ import annotations

import json
import os
from typing import Any

import counterweight_rl as cw
import numpy as np
from server_process import REPOSITORY

FOLDER = REPOSITORY / "tests/golden"
# Number of files of each system, so that no file is skipped.
COUNTS = {
    "areal": 138,
    "miles": 156,
    "ms_swift": 135,
    "nemo_rl": 148,
    "openrlhf": 108,
    "prime_rl": 73,
    "roll": 111,
    "skyrl": 181,
    "slime": 167,
    "tinker": 108,
    "trl": 175,
    "verl": 326,
    "dated/openrlhf": 111,
    "dated/trl": 88,
    "dated/verl": 68,
}
# All files of each system.
SYSTEMS = {
    system: sum(n for folder, n in COUNTS.items() if folder.endswith(system))
    for system in (
        "areal",
        "miles",
        "ms_swift",
        "nemo_rl",
        "openrlhf",
        "prime_rl",
        "roll",
        "skyrl",
        "slime",
        "tinker",
        "trl",
        "verl",
    )
}
# Releases with answers that equal the files without a release; "": the system has none.
OLD_RELEASES = {
    "areal": "",
    "miles": "",
    "ms_swift": "",
    "nemo_rl": "",
    "openrlhf": "0.11.0",
    "prime_rl": "",
    "roll": "",
    "skyrl": "0.4.0",
    "slime": "",
    "tinker": "",
    "trl": "1.9.0",
    "verl": "0.9.0",
}

GOLDENS: dict[str, dict[str, Any]] = {
    f"{folder.removeprefix('dated/')}/{path.stem}": json.loads(path.read_text())
    for folder in COUNTS
    for path in sorted((FOLDER / folder).glob("*.json"))
}
BLAMED_FIELDS: dict[str, list[str]] = json.loads((FOLDER / "blamed_fields.json").read_text())
# Batches that the original answers and the server refuses.
REFUSED: dict[str, dict[str, Any]] = json.loads((FOLDER / "refused.json").read_text())
# Inputs of requests; AReaL's policy_versions are of files that are refused.
READ = {
    *(f"{policy}_log_probs" for policy in ("rollout", "old", "current", "ref")),
    *("advantages", "response_mask"),
}
for name, refusal in REFUSED.items():
    GOLDENS[name]["expect"] = {"error": {"message": refusal["reason"]}}
    BLAMED_FIELDS[name] = refusal["blamed"]


# GOLDEN_SAMPLE=N takes every Nth: for environments that differ in what is beside the client.
SAMPLE = int(os.environ.get("GOLDEN_SAMPLE", "1"))


def array(rows: list[list[Any]]) -> np.ndarray:
    # float() also reads "NaN", "Infinity" and "-Infinity".
    shape = (len(rows), len(rows[0]) if rows else 0)
    return np.array([float(x) for row in rows for x in row]).reshape(shape)


def asks_for_loss(golden: dict[str, Any]) -> bool:
    """Returns whether the file has a loss, or the original failed while computing one."""
    expect, inputs = golden["expect"], golden["inputs"]
    if "error" in expect:
        return "current_log_probs" in inputs or "advantages" in inputs
    return "loss" in expect


def release_of(golden: dict[str, Any]) -> str:
    """Returns the release of the file's answer: "0.9.1"."""
    named: str = golden.get("release", OLD_RELEASES[golden["dialect"]])
    return named.rpartition("=")[2]


def arguments(golden: dict[str, Any]) -> dict[str, Any]:
    """Returns the file's request as arguments of Client.correct."""
    asked: dict[str, Any] = {
        name: array(rows).astype(np.float32)
        for name, rows in golden["inputs"].items()
        if name in READ
    }
    asked["response_mask"] = asked["response_mask"].astype(np.uint8)
    asked["method"] = cw.Dialect(golden["dialect"], golden["params"], release=release_of(golden))
    asked["outputs"] = ["keep_mask"]
    if "weights" in golden["expect"]:
        asked["outputs"].append("weights")
    if asks_for_loss(golden):
        asked["outputs"].append("gradient")
    return asked


def correct(client: cw.Client, golden: dict[str, Any]) -> cw.Result[Any]:
    return client.correct(**arguments(golden))
