"""Rows of JSON lines: NeMo-RL's train data, prime-rl's token export, or columns of any names."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from counterweight_rl.audit.known_files import ONE_SIDE, joins, refuse_unless_complete
from counterweight_rl.audit.responses import is_response, opened
from counterweight_rl.audit.rows import Array, SourceError, UnitRows, make
from counterweight_rl.audit.spec import ROLES, Spec

CHUNK_BYTES = 16 << 20
"""A unit has the lines that begin in so many bytes."""
_STEP = re.compile(r"train_data_step(\d+)$")
_LISTS = ("rollout_log_probs", "old_log_probs", "response_mask", "policy_versions")
Row = Mapping[str, Any]


def groups(path: pathlib.Path) -> list[int]:
    """The bytes of each unit.

    Raises:
        SourceError: It is empty, or still being written.
    """
    size = path.stat().st_size
    if size == 0:
        raise SourceError("is empty")
    return [min(CHUNK_BYTES, size - begin) for begin in range(0, size, CHUNK_BYTES)]


def count(path: pathlib.Path) -> int:
    """The number of units.

    Raises:
        SourceError: It is empty.
    """
    return len(groups(path))


def read(path: pathlib.Path, group: int, spec: Spec, modified: float) -> UnitRows:
    """Reads the lines of a unit.

    Raises:
        SourceError: They cannot be audited.
    """
    if path.parent.parent.name == "token_exports" and not (path.parent / "STABLE").exists():
        raise SourceError("its folder has no file STABLE: prime-rl has not finished this step")
    is_recent = spec.since is None or modified >= spec.since
    problems: dict[str, int] = {}
    taken: list[dict[str, Any]] = []
    for row in _lines(path, group, problems) if is_recent else ():
        if is_response(row):
            raise SourceError(ONE_SIDE)
        names = {
            role: name
            for role in ROLES
            if (name := next((n for n in spec.names(role) if n in row), None)) is not None
        }
        refuse_unless_complete(names, row, spec)
        found = _lists(row, names, problems, spec)
        if found is None:
            continue
        found.update({role: row[names[role]] for role in names if role not in _LISTS})
        taken.append(found)
    lengths = np.array([len(row["response_mask"]) for row in taken], np.int64)

    def numbers(role: str) -> Array | None:
        return np.array([_integer(row.get(role), role) for row in taken], np.int64)

    of_path = _STEP.search(path.stem)
    step = of_path[1] if of_path else "unknown"
    labels: dict[str, Array | None] = {
        "step": _texts([row.get("step", step) for row in taken]),
        "replica": _texts([row.get("replica") for row in taken]),
    }
    kinds = {"rollout_log_probs": np.float32, "old_log_probs": np.float32}
    lists: dict[str, Array] = {
        role: _joined([row[role] for row in taken], kinds.get(role, np.int64))
        for role in _LISTS[:3]
    }
    lists["policy_versions"] = _joined(
        [row.get("policy_versions", np.full(len(row["response_mask"]), -1)) for row in taken],
        np.int64,
    )
    return make(lists, lengths, numbers, labels, problems)


def _lines(path: pathlib.Path, group: int, problems: dict[str, int]) -> Iterator[Row]:
    begin = group * CHUNK_BYTES
    with path.open("rb") as file:
        if begin:
            # A line that begins before belongs to the unit before.
            file.seek(begin - 1)
            file.readline()
        while file.tell() < begin + CHUNK_BYTES:
            line = file.readline()
            if not line:
                return
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError:
                _count(problems, "lines that are no JSON; a last one may be cut off")
                continue
            if isinstance(row, dict):
                yield row
            else:
                _count(problems, "lines that are no JSON object")


def _lists(
    row: Row, names: Mapping[str, str], problems: dict[str, int], spec: Spec
) -> dict[str, Any] | None:
    """The columns of one value per token; None: the row is left out."""
    found: dict[str, Any] = {}
    try:
        for role in _LISTS[:2]:
            if role in names:
                found[role] = np.array(row[names[role]], np.float32)
        found["response_mask"] = np.array(row[names["response_mask"]], np.float64)
        versions = row[names["policy_versions"]] if "policy_versions" in names else None
        if versions is not None:
            shape = found["response_mask"].shape
            found["policy_versions"] = np.broadcast_to(np.array(versions, np.int64), shape)
    except (TypeError, ValueError):
        _count(problems, "rows with a column that is no list of numbers, or of another length")
        return None
    if len({column.shape for column in found.values()}) > 1 or found["response_mask"].ndim != 1:
        _count(problems, "rows whose columns differ in length")
        return None
    if joins(names, spec):
        joined = _of_response(row[names["response_id"]], found["response_mask"], problems, spec)
        return None if joined is None else {**joined, **found}
    if names["rollout_log_probs"] == "generation_logprobs":
        # NeMo-RL's columns begin with the prompt's first token, which has no log-prob, and
        # end with padding.
        end = row.get("input_lengths", len(found["response_mask"]))
        found = {role: column[1:end] for role, column in found.items()}
        found["response_mask"] = found["response_mask"] * (row.get("sample_loss_mask", 1) != 0)
    return found


def _of_response(
    name: Any, mask: Array, problems: dict[str, int], spec: Spec
) -> dict[str, Any] | None:
    """The engine's columns of a row; None: the row is left out."""
    at = opened(spec.responses or "").at(str(name), mask)
    if isinstance(at, str):
        _count(problems, at)
        return None
    return {"rollout_log_probs": at[0], "policy_versions": at[1]}


def _count(problems: dict[str, int], sentence: str) -> None:
    problems[sentence] = problems.get(sentence, 0) + 1


def _integer(value: Any, role: str) -> int:
    if value is None or isinstance(value, list):
        return -1
    if isinstance(value, bool) or not isinstance(value, int):
        raise SourceError(f"{role} must be an integer, not {value!r}")
    return value


def _texts(values: list[Any]) -> Array:
    return np.array(["unknown" if v is None else str(v) for v in values], dtype=np.str_)


def _joined(parts: list[Any], kind: Any) -> Array:
    if not parts:
        return np.empty(0, kind)
    whole: Array = np.concatenate(parts)
    if kind is np.int64 and not (whole == np.floor(whole)).all():
        raise SourceError("response_mask must be 0 or 1 everywhere")
    return whole.astype(kind)
