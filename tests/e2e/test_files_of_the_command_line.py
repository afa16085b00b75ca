"""The table of files in client/python/README.md: ``counterweight`` reads each kind as
``Client.correct`` reads its arrays."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from command_line import counterweight
from server_process import ServerProcess

pytest.importorskip("click")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS, WIDTH = 5, 7
SOURCE = np.random.default_rng(11)
OLD = -SOURCE.exponential(size=(ROWS, WIDTH))
MASK = SOURCE.random((ROWS, WIDTH)) < 0.8
PER_ROW = SOURCE.normal(size=ROWS).astype(np.float32)
PER_TOKEN = np.repeat(PER_ROW[:, None], WIDTH, 1)
LENGTHS = np.array([3, 0, 7, 1, 24])
VERSIONS = np.where(MASK, 3, -1)
SPANS = np.array([[0, 0, 7, 2], [1, 1, 3, 1], [4, 0, 2, 3]])
GROUPS = np.array([5, 5, -2, -2, 9])
BASE = {"old_log_probs": OLD, "current_log_probs": OLD + 0.1, "response_mask": MASK}
BASE |= {"rollout_log_probs": OLD - 0.1}
LOSS = ["--method", "ppo_clip"]
VERSION = [*LOSS, "--policy-version", "4"]
SKYRL = ["--dialect", "skyrl"]


def flat(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: array.reshape(-1) for name, array in arrays.items()}


def as_dtype(dtype: Any, order: Any = "C") -> dict[str, Any]:
    reals = {n: np.asarray(a, dtype, order=order) for n, a in BASE.items() if n != "response_mask"}
    return {**reals, "response_mask": np.asarray(MASK, order=order), "advantages": PER_ROW}


# The arrays of each file, and the flags.
NPZ: dict[str, tuple[dict[str, Any], list[str]]] = {
    "advantages": ({**BASE, "advantages": PER_TOKEN}, LOSS),
    "advantages [B]": ({**BASE, "advantages": PER_ROW}, LOSS),
    "advantages [B, 1]": ({**BASE, "advantages": PER_ROW[:, None]}, LOSS),
    "packed": (
        {**flat(BASE), "advantages": PER_TOKEN.reshape(-1), "sequence_lengths": LENGTHS},
        LOSS,
    ),
    "packed, advantages [B]": (
        {**flat(BASE), "advantages": PER_ROW, "sequence_lengths": LENGTHS},
        LOSS,
    ),
    "packed, advantages [B, 1]": (
        {**flat(BASE), "advantages": PER_ROW[:, None], "sequence_lengths": LENGTHS},
        LOSS,
    ),
    **{
        f"reals of {dtype}": (as_dtype(dtype), LOSS)
        for dtype in ("<f2", ">f2", "<f4", ">f4", "<f8", ">f8")
    },
    "Fortran order": (as_dtype("<f8", "F"), LOSS),
    **{
        f"mask of {dtype}": (
            {**BASE, "advantages": PER_ROW, "response_mask": MASK.astype(dtype)},
            LOSS,
        )
        for dtype in ("?", "u1", "i1", "<i2", ">i4", "<i8", "<u8", "<f2", "<f4", ">f8")
    },
    **{
        f"lengths of {dtype}": (
            {**flat(BASE), "advantages": PER_ROW, "sequence_lengths": LENGTHS.astype(dtype)},
            LOSS,
        )
        for dtype in ("u1", "i1", ">i2", "<i4", "<u8")
    },
    **{
        f"versions of {dtype}": (
            {**BASE, "advantages": PER_ROW, "policy_versions": VERSIONS.astype(dtype)},
            VERSION,
        )
        for dtype in ("i1", ">i2", "<i4", ">i8")
    },
    "version_spans": ({**BASE, "advantages": PER_ROW, "version_spans": SPANS}, VERSION),
    "versions without a version": (
        {**BASE, "advantages": PER_ROW, "version_spans": SPANS, "policy_versions": VERSIONS},
        LOSS,
    ),
    "group_ids": ({**BASE, "advantages": PER_ROW, "group_ids": GROUPS}, SKYRL),
    "group_ids of a preset": ({**BASE, "advantages": PER_ROW, "group_ids": GROUPS}, LOSS),
}
# Columns of each Parquet file: of lists, or of numbers.
PARQUET: dict[str, tuple[dict[str, Any], list[str]]] = {
    "advantages": ({**BASE, "advantages": PER_TOKEN}, LOSS),
    "one advantage": ({**BASE, "advantages": PER_ROW}, LOSS),
    "one float64 advantage": ({**BASE, "advantages": PER_ROW.astype("f8")}, LOSS),
    "float16": (as_dtype("<f2"), LOSS),
    "group_ids": ({**BASE, "advantages": PER_ROW, "group_ids": GROUPS}, SKYRL),
    "versions": ({**BASE, "advantages": PER_ROW, "policy_versions": VERSIONS}, VERSION),
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two readings": (
        {
            **{name: array[:ROWS] for name, array in flat(BASE).items()},
            "advantages": PER_ROW,
            "sequence_lengths": np.array([2, 0, 1, 1, 1]),
        },
        "advantages",
    ),
    "advantages of others": ({**BASE, "advantages": PER_ROW[:3]}, "advantages"),
    "complex": ({**BASE, "old_log_probs": OLD.astype(complex)}, "old_log_probs"),
    "text": ({**BASE, "response_mask": MASK.astype(str)}, "response_mask"),
    "groups of others": ({**BASE, "advantages": PER_ROW, "group_ids": GROUPS[:2]}, "group_ids"),
    "groups of numbers": ({**BASE, "group_ids": GROUPS.astype(float)}, "group_ids"),
    "spans of three": ({**BASE, "version_spans": SPANS[:, :3]}, "version_spans"),
    "beyond int64": ({**BASE, "group_ids": np.full(ROWS, 2**63, np.uint64)}, "group_ids"),
}


def blocks(flags: list[str], folder: pathlib.Path) -> list[str]:
    if flags != SKYRL:
        return flags
    block = folder / "block.json"
    block.write_text(json.dumps({"policy_loss_type": "regular", "loss_reduction": "prompt_mean"}))
    return [*SKYRL, "--block", str(block)]


def corrected(server: ServerProcess, path: pathlib.Path, flags: list[str]) -> dict[str, Any] | str:
    """Returns the loss and the gradient that the command line writes, or its error."""
    output = path.with_suffix(".result.npz")
    arguments = ["correct", path, *blocks(flags, path.parent), "--json", "-o", output]
    ended = counterweight(*arguments, "--target", server.address)
    if ended.returncode:
        return ended.stderr
    with np.load(output) as arrays:
        gradient = arrays["gradient"].reshape(-1).tolist() if "gradient" in arrays else None
    return {"loss": json.loads(ended.stdout)["loss"], "gradient": gradient}


def expected(client: cw.Client, arrays: dict[str, Any], flags: list[str]) -> dict[str, Any]:
    batch = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    settings: dict[str, Any] = {"method": "ppo_clip"}
    if flags == SKYRL:
        block = {"policy_loss_type": "regular", "loss_reduction": "prompt_mean"}
        settings["method"] = cw.Dialect("skyrl", block)
    else:
        batch.pop("group_ids", None)
    if "--policy-version" in flags:
        settings["policy_version"] = 4
    else:
        batch.pop("policy_versions", None)
        batch.pop("version_spans", None)
    result = client.correct(**batch, **settings)
    return {
        "loss": result.loss,
        "gradient": None if result.gradient is None else result.gradient.reshape(-1).tolist(),
    }


@pytest.mark.parametrize("name", NPZ)
def test_npz(client: cw.Client, server: ServerProcess, tmp_path: pathlib.Path, name: str) -> None:
    arrays, flags = NPZ[name]
    path = tmp_path / "batch.npz"
    np.savez(path, **arrays)
    assert corrected(server, path, flags) == expected(client, arrays, flags)


@pytest.mark.parametrize("name", PARQUET)
def test_parquet(
    client: cw.Client, server: ServerProcess, tmp_path: pathlib.Path, name: str
) -> None:
    arrays, flags = PARQUET[name]
    columns = {
        key: pa.array(array) if array.ndim == 1 else pa.array(list(array), pa.list_(kind(array)))
        for key, array in arrays.items()
    }
    path = tmp_path / "batch.parquet"
    try:
        pq.write_table(pa.table(columns), path)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"this release of pyarrow writes no such file: {error}")
    packed = {
        key: array if key == "group_ids" else array[:, None] if array.ndim == 1 else np.ravel(array)
        for key, array in arrays.items()
    }
    packed["sequence_lengths"] = np.full(ROWS, WIDTH)
    assert corrected(server, path, flags) == expected(client, packed, flags)


def kind(array: Any) -> Any:
    return pa.from_numpy_dtype(array.dtype)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arrays_are_refused(server: ServerProcess, tmp_path: pathlib.Path, name: str) -> None:
    arrays, argument = WRONG[name]
    path = tmp_path / "batch.npz"
    np.savez(path, **arrays)
    flags = SKYRL if "group" in argument else VERSION
    error = corrected(server, path, flags)
    assert isinstance(error, str)
    assert argument in error
    assert "Traceback" not in error
