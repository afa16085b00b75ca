"""Audits one unit."""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any

import numpy as np

from counterweight_rl.audit import keys, sources
from counterweight_rl.audit.part import Fault, Part, Problem, Total
from counterweight_rl.audit.rows import SourceError, UnitRows
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
    engine = client(spec)
    whole = keys.Tokens(rows.rollout, rows.old, rows.mask, rows.lengths)
    versions, trained = rows.stale_versions
    given = _given(whole)
    given.update(policy_versions=versions, policy_version=trained)
    part.add_total(ALL, _sums(engine, PLAIN, given), engine)
    for values, tokens in keys.split(rows, [key for key in spec.by if key != "staleness"]):
        found = _sums(engine, PLAIN, _given(tokens))
        for value in values:
            part.add_total(value, found, engine)
    for name, method in spec.methods.items():
        given = _given(whole)
        if _needs_current(name, method, spec):
            given["current_log_probs"] = given.pop("old_log_probs")
        part.add_total(("method", name), _sums(engine, method, given), engine)
    if spec.doctor:
        _examine(part, path, group, rows, spec)


def _given(tokens: keys.Tokens) -> Arrays:
    """The arguments of a call with them."""
    return {
        "rollout_log_probs": tokens.rollout,
        "old_log_probs": tokens.old,
        "response_mask": tokens.mask,
        "sequence_lengths": tokens.lengths,
    }


def _sums(engine: Client, method: Method, given: Arrays) -> Total:
    result = engine.correct(
        method=method,
        outputs=["keep_mask"],
        non_finite="drop",
        partial_sums=True,
        omit_loss=True,
        **given,
    )
    return Total(result.sums)


def _examine(part: Part, path: str, group: int, rows: UnitRows, spec: Spec) -> None:
    versions, trained = rows.stale_versions
    try:
        found = client(spec).diagnose(
            response_mask=rows.mask,
            rollout_log_probs=rows.rollout,
            old_log_probs=rows.old,
            sequence_lengths=rows.lengths,
            policy_versions=versions,
            policy_version=trained,
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
    batch: Arrays = {
        "rollout_log_probs": ones,
        "response_mask": np.ones(1, np.uint8),
        "sequence_lengths": np.ones(1, np.int64),
    }
    failures = []
    for needs, trained in ((False, "old_log_probs"), (True, "current_log_probs")):
        try:
            _sums(client(spec), method, {**batch, trained: ones})
            _checked[key] = needs
            return needs
        except InvalidRequestError as error:
            failures.append(error)
    if any(each.field == "method" for each in failures[0].violations):
        failures = failures[:1]
    problems = " ".join(str(failures[-1]).split())
    raise ValueError(f"--methods {name}: {problems}; a log has log-probs of two policies only")
