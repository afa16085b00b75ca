"""The numbers of an audit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterweight_rl.audit import keys, work
from counterweight_rl.audit.part import ALL, Fault, Part, Problem, Total, from_bytes
from counterweight_rl.audit.spec import Spec
from counterweight_rl.client import Client
from counterweight_rl.config import Method
from counterweight_rl.step_totals import StepTotals


@dataclass(frozen=True)
class Drift:
    """The drift of some tokens.

    Attributes:
        value: Which: "3-4" versions behind, step "12".
        tokens: How many.
        sequences: How many they belong to; None where that is not counted.
        kl: k1, nats per token.
        k3: The same, of the estimator k3.
        chi2: By token; NaN where it is not computed.
    """

    value: str
    tokens: int
    sequences: int | None
    kl: float
    k3: float
    chi2: float


@dataclass(frozen=True)
class Causes:
    """The parts of k3 that are the engine's and staleness's, as in ``attribution.Causes``.

    Attributes:
        k3: Of tokens with known versions, mean, nats.
        engine: The engine's part: k3 of fresh sequences. None below 200 fresh tokens.
        staleness: The rest, which may be below 0 by chance.
        fresh_tokens: Tokens of sequences that the trainer's version sampled.
    """

    k3: float
    engine: float | None
    staleness: float | None
    fresh_tokens: int


@dataclass(frozen=True)
class Effect:
    """The effect that a method would have had on all rows.

    Attributes:
        method: Its name.
        metrics: As one call with all rows answers them.
    """

    method: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """The numbers of an audit.

    Attributes:
        whole: The drift of all tokens; None: no token was audited.
        metrics: As one call with all rows and method "none" answers them.
        drift: By key.
        causes: What the drift is due to; None: it is not among the keys, or no version is known.
        effects: Of each method.
        faults: The doctor's findings, worst first.
        problems: What was left out, and why.
        files: Files that were looked at.
        units: Row groups that were looked at.
        warnings: Sentences of the answers.
        digest: Of the numbers of drift and methods: equal for the same rows, however they lie in
            files and whatever computed the parts.
    """

    whole: Drift | None
    metrics: Mapping[str, float]
    drift: Mapping[str, Sequence[Drift]]
    causes: Causes | None
    effects: Sequence[Effect]
    faults: Sequence[Fault]
    problems: Sequence[Problem]
    files: int
    units: int
    warnings: Sequence[str]
    digest: str

    @property
    def is_complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.problems


# Fewer do not measure the engine's part; kernels/doctor/attribution.h has the same bound.
_FRESH_TOKENS = 200
_SEVERITIES = ("error", "warning", "note")


def report(data: bytes, spec: Spec) -> Report:
    """Makes the report of a part.

    Raises:
        ValueError: The bytes are no part of an audit with that spec.
    """
    return of_part(from_bytes(data), spec)


def of_part(part: Part, spec: Spec) -> Report:
    """Makes the report of a part.

    Raises:
        ValueError: It is of another spec.
    """
    if part.spec != spec.hash:
        raise ValueError("the part is of an audit with another spec")
    client = work.client(spec)
    digest = hashlib.sha256()
    whole: Drift | None = None
    metrics: Mapping[str, float] = {}
    warnings: tuple[str, ...] = ()
    drift: dict[str, Sequence[Drift]] = {}
    if ALL in part.totals:
        answer = _answer(client, part.totals[ALL], work.PLAIN, digest, "all")
        metrics, warnings = answer.metrics, answer.warnings
        whole = _drift("all", answer)
        if "staleness" in spec.by and answer.staleness is not None:
            drift["staleness"] = [
                Drift(b.label, b.tokens, None, b.kl, b.k3, math.nan)
                for b in answer.staleness.buckets
                if b.tokens
            ]
            unknown = answer.staleness.unknown_tokens
            if unknown:
                nan = math.nan
                drift["staleness"] = [
                    *drift["staleness"],
                    Drift("unknown", unknown, None, nan, nan, nan),
                ]
    for key in spec.by:
        there = {value: total for (kind, value), total in part.totals.items() if kind == key}
        # A key that no file has is left out.
        if there and there.keys() != {"unknown"}:
            drift[key] = [
                _drift(value, _answer(client, there[value], work.PLAIN, digest, f"{key}={value}"))
                for value in keys.order(key, there)
            ]
    effects = [
        Effect(name, _answer(client, part.totals["method", name], method, digest, name).metrics)
        for name, method in spec.methods.items()
        if ("method", name) in part.totals
    ]
    ranks = {severity: i for i, severity in enumerate(_SEVERITIES)}
    return Report(
        whole=whole,
        metrics=metrics,
        drift=drift,
        causes=_causes(drift.get("cause", ())),
        effects=effects,
        faults=sorted(
            part.faults.values(), key=lambda f: (ranks.get(f.severity, 0), f.file, f.name)
        ),
        problems=[part.problems[key] for key in sorted(part.problems)],
        files=len(part.units),
        units=sum(map(len, part.units.values())),
        warnings=warnings,
        digest=digest.hexdigest()[:16],
    )


def _answer(client: Client, total: Total, method: Method, digest: Any, name: str) -> StepTotals:
    answer = client.metrics_of(total.sums, method)
    numbers = {n: v for n, v in answer.metrics.items() if v == v}
    line = [name, *(f"{n} {v.hex()}" for n, v in sorted(numbers.items())), repr(answer.rules)]
    if answer.staleness is not None:
        of_bucket = answer.staleness.buckets
        line += [f"{b.label} {b.tokens} {b.kl.hex()} {b.k3.hex()}" for b in of_bucket]
    digest.update("\n".join(line).encode())
    return answer


def _drift(value: str, answer: StepTotals) -> Drift:
    metrics = answer.metrics
    return Drift(
        value,
        int(metrics["tokens"]),
        int(metrics["sequences"]),
        metrics["kl"],
        metrics["k3"],
        metrics["chi2_token"],
    )


def _causes(rows: Sequence[Drift]) -> Causes | None:
    of = {row.value: row for row in rows}
    fresh, stale = (of.get(value) for value in keys.CAUSES[:2])
    known = [row for row in (fresh, stale) if row is not None and row.tokens]
    if not known:
        return None
    k3 = math.fsum(row.k3 * row.tokens for row in known) / sum(row.tokens for row in known)
    if fresh is None or fresh.tokens < _FRESH_TOKENS:
        return Causes(k3, None, None, 0 if fresh is None else fresh.tokens)
    return Causes(k3, fresh.k3, k3 - fresh.k3, fresh.tokens)
