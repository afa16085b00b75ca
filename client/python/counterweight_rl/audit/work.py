"""Audits one unit."""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any

import numpy as np

from counterweight_rl.audit import keys, sources
from counterweight_rl.audit.part import Fault, Part, Problem, Total
from counterweight_rl.audit.rows import NEWEST, SourceError, UnitRows
from counterweight_rl.audit.spec import LOCAL, Spec
from counterweight_rl.client import Client
from counterweight_rl.config import Method, Preset
from counterweight_rl.errors import CounterweightError, InvalidRequestError
from counterweight_rl.local.target import read_target
from counterweight_rl.transport.channel import TlsConfig

PLAIN: Method = "none"
"""The method with the metrics of the drift alone."""
ALL = ("all", "")
Arrays = dict[str, Any]


def client(spec: Spec | None = None) -> Client:
    """This process's client of a spec's engine; None: the engine of this process."""
    if spec is None or read_target(spec.target) is not None:
        return _open(LOCAL if spec is None else spec.target, None, None, None)
    return _open(spec.target, spec.timeout, spec.token_file, spec.tls)


@functools.cache
def _open(
    target: str, timeout: float | None, token_file: str | None, tls: TlsConfig | None
) -> Client:
    return Client(target, timeout=timeout, token_file=token_file, tls=tls)


def check_methods(spec: Spec) -> None:
    """Tries the methods on one token.

    Raises:
        ValueError: A method does not exist, or needs what logs do not have.
    """
    for name, method in spec.methods.items():
        _needs_current(name, method, spec)


def audit(path: str, group: int, spec: Spec) -> Part:
    """Audits a unit; what is wrong with the file becomes a problem of the part."""
    part = Part(spec.hash, units={path: [group]})
    file = pathlib.Path(path)
    try:
        before = sources.identity(file)
        rows = sources.read(file, group, spec)
        if sources.identity(file) != before:
            raise SourceError("changed while it was read")
        part.files[path] = before
        _compute(part, path, group, rows, spec)
    except SourceError as error:
        return _refused(path, group, spec, str(error))
    except OSError as error:
        return _refused(path, group, spec, f"cannot be read: {error.strerror or error}")
    except InvalidRequestError as error:
        return _refused(path, group, spec, " ".join(str(error).split()))
    for sentence, count in rows.problems.items():
        part.add_problem(Problem(path, sentence, 0, count))
    return part


def _refused(path: str, group: int, spec: Spec, sentence: str) -> Part:
    part = Part(spec.hash, units={path: [group]})
    part.add_problem(Problem(path, sentence, 1, 0))
    return part


def _compute(part: Part, path: str, group: int, rows: UnitRows, spec: Spec) -> None:
    if not len(rows.lengths):
        return
    arrays: Arrays = {
        "rollout_log_probs": rows.rollout,
        "old_log_probs": rows.old,
        "response_mask": rows.mask,
        "policy_versions": rows.stale_versions,
    }
    whole = keys.Selection(None, rows.lengths)
    part.add_total(ALL, _sums(arrays, whole, PLAIN, spec), client(spec))
    del arrays["policy_versions"]
    of_all: Total | None = None
    for key in spec.by:
        if key == "staleness":  # it is among the sums of all
            continue
        for value, selection in keys.split(rows, key):
            if selection.begins is None and selection.mask is None:
                of_value = of_all = of_all or _sums(arrays, whole, PLAIN, spec)
            else:
                of_value = _sums(arrays, selection, PLAIN, spec)
            part.add_total((key, value), of_value, client(spec))
    for name, method in spec.methods.items():
        given = dict(arrays)
        if _needs_current(name, method, spec):
            given["current_log_probs"] = given.pop("old_log_probs")
        part.add_total(("method", name), _sums(given, whole, method, spec), client(spec))
    if spec.doctor:
        _examine(part, path, group, rows, spec)


def _sums(arrays: Arrays, selection: keys.Selection, method: Method, spec: Spec) -> Total:
    chosen: Arrays = {name: selection.take(array) for name, array in arrays.items()}
    if selection.mask is not None:
        chosen = {**chosen, "response_mask": selection.mask}
    extra: Arrays = {"policy_version": NEWEST} if "policy_versions" in chosen else {}
    result = client(spec).correct(
        method=method,
        sequence_lengths=selection.lengths,
        outputs=["keep_mask"],
        non_finite="drop",
        partial_sums=True,
        omit_loss=True,
        **chosen,
        **extra,
    )
    return Total(result.sums)


def _examine(part: Part, path: str, group: int, rows: UnitRows, spec: Spec) -> None:
    try:
        found = client(spec).diagnose(
            response_mask=rows.mask,
            rollout_log_probs=rows.rollout,
            old_log_probs=rows.old,
            sequence_lengths=rows.lengths,
            policy_versions=rows.stale_versions,
            policy_version=NEWEST,
        )
    except CounterweightError as error:
        part.add_problem(Problem(path, f"is not examined for faults: {error}", 0, 0))
        return
    for each in found.findings:
        part.add_fault(
            Fault(
                path,
                each.name,
                each.severity,
                each.confidence,
                1,
                group,
                each.sequence,
                each.sentence,
            )
        )


_checked: dict[tuple[str, str, int], bool] = {}


def _needs_current(name: str, method: Preset, spec: Spec) -> bool:
    """Whether a method compares current with rollout log-probs, which the trainer's then are.

    Raises:
        ValueError: It does not exist, or needs what logs do not have.
    """
    key = (repr(method), spec.target, os.getpid())
    if key in _checked:
        return _checked[key]
    ones = np.full(1, -1, np.float32)
    batch: Arrays = {"rollout_log_probs": ones, "response_mask": np.ones(1, np.uint8)}
    whole = keys.Selection(None, np.ones(1, np.int64))
    failures = []
    for needs, trained in ((False, "old_log_probs"), (True, "current_log_probs")):
        try:
            _sums({**batch, trained: ones}, whole, method, spec)
            _checked[key] = needs
            return needs
        except InvalidRequestError as error:
            failures.append(error)
    if any(each.field == "method" for each in failures[0].violations):
        failures = failures[:1]
    problems = " ".join(str(failures[-1]).split())
    raise ValueError(f"--methods {name}: {problems}; a log has log-probs of two policies only")
