"""Audits one unit."""

from __future__ import annotations

import functools
import os
import pathlib
from dataclasses import replace
from typing import Any

import numpy as np

from counterweight_rl.audit import keys, sources
from counterweight_rl.audit.part import Fault, Part, Problem, totals_of
from counterweight_rl.audit.pieces import Split, Tokens, whole
from counterweight_rl.audit.rows import NEWEST, Array, SourceError, UnitRows
from counterweight_rl.audit.spec import LOCAL, Spec
from counterweight_rl.client import Client
from counterweight_rl.config import Method, Preset
from counterweight_rl.errors import CounterweightError, InvalidRequestError
from counterweight_rl.local.connection_sync import LocalConnection
from counterweight_rl.local.plan import Pieces
from counterweight_rl.local.target import read_target
from counterweight_rl.transport.channel import TlsConfig

PLAIN: Method = "none"
"""The method with the metrics of the drift alone."""
Arrays = dict[str, Any]
_SETTINGS: Arrays = {
    "outputs": ["keep_mask"],
    "non_finite": "drop",
    "partial_sums": True,
    "omit_loss": True,
}


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


@functools.cache
def _library(target: str) -> LocalConnection | None:
    """The engine of this process, which sums parts in one pass; None: another one."""
    local = read_target(target)
    return None if local is None else LocalConnection(local, None, None)


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
    for split in keys.split(rows, spec.by):
        found = _sums_of_parts(spec, PLAIN, split)
        for key, members in split.members:
            for total in totals_of(*found, members):
                part.add_total(key, total, engine)
    everything = replace(whole(rows), versions=None)
    one = Split(everything, np.zeros(len(rows.lengths), np.int32), 1, [])
    for name, method in spec.methods.items():
        needs_current = _needs_current(name, method, spec)
        found = _sums_of_parts(spec, method, one, needs_current=needs_current)
        for total in totals_of(*found, np.array([0])):
            part.add_total(("method", name), total, engine)
    if spec.doctor:
        _examine(part, path, group, rows, spec)


def _sums_of_parts(
    spec: Spec, method: Method, split: Split, *, needs_current: bool = False
) -> tuple[Array, Array]:
    """``PartialSums.sums`` and ``.maxima`` of each part, as matrices."""
    local = _library(spec.target)
    if local is not None:
        call = _call(method, split.tokens, needs_current=needs_current)
        kind = (repr(method), needs_current, split.tokens.versions is None)
        batch = Pieces(call, call["sequence_lengths"], split.part_of, split.num_parts)
        found = local.sum_parts(kind, call, batch)
        if found is not None:
            return found
    engine = client(spec)
    apart = [
        engine.correct(**_call(method, split.part(index), needs_current=needs_current)).sums
        for index in range(split.num_parts)
    ]
    return np.stack([each.sums for each in apart]), np.stack([each.maxima for each in apart])


def _call(method: Method, tokens: Tokens, *, needs_current: bool) -> Arrays:
    """The arguments of ``correct``."""
    call = {
        "method": method,
        "rollout_log_probs": tokens.rollout,
        "current_log_probs" if needs_current else "old_log_probs": tokens.old,
        "response_mask": tokens.mask,
        "sequence_lengths": tokens.lengths,
        **_SETTINGS,
    }
    if tokens.versions is not None:
        call.update(policy_versions=tokens.versions, policy_version=NEWEST)
    return call


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
    batch: Arrays = {
        "rollout_log_probs": ones,
        "response_mask": np.ones(1, np.uint8),
        "sequence_lengths": np.ones(1, np.int64),
    }
    failures = []
    for needs, trained in ((False, "old_log_probs"), (True, "current_log_probs")):
        try:
            tried: Arrays = {**batch, **_SETTINGS, trained: ones}
            client(spec).correct(method=method, **tried)
            _checked[key] = needs
            return needs
        except InvalidRequestError as error:
            failures.append(error)
    if any(each.field == "method" for each in failures[0].violations):
        failures = failures[:1]
    problems = " ".join(str(failures[-1]).split())
    raise ValueError(f"--methods {name}: {problems}; a log has log-probs of two policies only")
