"""The audit of some units: sums that add up exactly, findings, and problems."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from counterweight_rl.audit.rows import Array
from counterweight_rl.client import Client
from counterweight_rl.partial_sums import PartialSums

FORMAT = 2
"""The version of the bytes of a part."""
# Vectors of sums add up without error to 8,192; beyond half of it they are rounded anew.
_MOST = 4096
_HEAD = struct.Struct("<8sQ")
_MAGIC = b"cwaudit1"
Key = tuple[str, str]
"""("step", "12"), ("method", "token_tis"), or ALL."""
ALL: Key = ("all", "")
"""The key of all sequences."""


@dataclass(frozen=True)
class Total:
    """Sums of rows.

    Attributes:
        sums: See ``PartialSums``.
        vectors: How many were added since the sums were last rounded.
    """

    sums: PartialSums
    vectors: int = 1

    def plus(self, other: Total, client: Client) -> Total:
        """Adds other rows."""
        if self.vectors + other.vectors > _MOST:
            return Total(client.merge([self.sums, other.sums]))
        both = PartialSums(
            self.sums.sums + other.sums.sums, np.maximum(self.sums.maxima, other.sums.maxima)
        )
        return Total(both, self.vectors + other.vectors)


def totals_of(sums: Array, maxima: Array, members: Array) -> Iterator[Total]:
    """The sums of some rows of two matrices, in as few vectors as hold them."""
    for begin in range(0, len(members), _MOST):
        here = members[begin : begin + _MOST]
        yield Total(PartialSums(sums[here].sum(0), maxima[here].max(0)), len(here))


@dataclass(frozen=True)
class Fault:
    """A finding of the doctor in a file.

    Attributes:
        file: The file.
        name: Its name in kernels/doctor/FINDINGS.md.
        severity: "error", "warning" or "note".
        confidence: The largest of its units.
        units: Row groups that have it.
        group: The first of them.
        sequence: The example's sequence there; None: no single one.
        sentence: What was found there, and the way out.
    """

    file: str
    name: str
    severity: str
    confidence: float
    units: int
    group: int
    sequence: int | None
    sentence: str


@dataclass(frozen=True)
class Problem:
    """A reason for which something was not audited.

    Attributes:
        file: The file.
        sentence: The reason.
        units: Row groups that are left out whole.
        rows: Rows of others that are left out.
    """

    file: str
    sentence: str
    units: int
    rows: int


@dataclass
class Part:
    """The audit of some units.

    Attributes:
        spec: Hash of what was computed.
        totals: Sums by key.
        faults: By file and name.
        problems: By file and sentence.
        units: Row groups that were read, by file.
        files: What changes when a file is written, by file.
    """

    spec: str
    totals: dict[Key, Total] = field(default_factory=dict)
    faults: dict[Key, Fault] = field(default_factory=dict)
    problems: dict[Key, Problem] = field(default_factory=dict)
    units: dict[str, list[int]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def add_total(self, key: Key, sums: Total, client: Client) -> None:
        """Adds sums of rows with a key."""
        self.totals[key] = self.totals[key].plus(sums, client) if key in self.totals else sums

    def add_problem(self, problem: Problem) -> None:
        """Adds a reason, which several units may have."""
        key = (problem.file, problem.sentence)
        there = self.problems.get(key)
        if there is not None:
            problem = replace(
                problem, units=problem.units + there.units, rows=problem.rows + there.rows
            )
        self.problems[key] = problem

    def add_fault(self, fault: Fault) -> None:
        """Adds a finding; the example is that of the first row group."""
        key = (fault.file, fault.name)
        there = self.faults.get(key)
        if there is not None:
            first = min(there, fault, key=lambda each: each.group)
            confidence = max(there.confidence, fault.confidence)
            fault = replace(first, units=there.units + fault.units, confidence=confidence)
        self.faults[key] = fault

    def add(self, other: Part, client: Client) -> None:
        """Adds the audit of other units.

        Raises:
            ValueError: It has another spec, or a unit that is here too.
        """
        if self.spec != other.spec:
            raise ValueError("parts of audits with different specs do not add up")
        for file, groups in other.units.items():
            mine = self.units.setdefault(file, [])
            twice = {*mine} & {*groups}
            if twice:
                raise ValueError(f"{file}: row group {min(twice)} is in both parts")
            self.units[file] = sorted([*mine, *groups])
        for file, there in other.files.items():
            if self.files.setdefault(file, there) != there:
                self.add_problem(Problem(file, "changed while it was read", 0, 0))
        for key, total in other.totals.items():
            self.add_total(key, total, client)
        for fault in other.faults.values():
            self.add_fault(fault)
        for problem in other.problems.values():
            self.add_problem(problem)

    def to_bytes(self) -> bytes:
        """Returns the part as bytes; equal parts have equal ones."""
        keys = sorted(self.totals)
        vectors = [self.totals[key] for key in keys]
        head = {
            "format": FORMAT,
            "spec": self.spec,
            "keys": [
                [*key, total.vectors, len(total.sums.sums), len(total.sums.maxima)]
                for key, total in zip(keys, vectors, strict=True)
            ],
            "faults": [asdict(self.faults[key]) for key in sorted(self.faults)],
            "problems": [asdict(self.problems[key]) for key in sorted(self.problems)],
            "units": self.units,
            "files": self.files,
        }
        text = json.dumps(head, sort_keys=True).encode()
        numbers = [n for total in vectors for n in (total.sums.sums, total.sums.maxima)]
        return b"".join(
            [_HEAD.pack(_MAGIC, len(text)), text, *(n.astype("<f8").tobytes() for n in numbers)]
        )


def from_bytes(data: bytes) -> Part:
    """Reads a part.

    Raises:
        ValueError: The bytes are none, or of another release.
    """
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise ValueError("these bytes are no part of an audit")
    _, length = _HEAD.unpack_from(data)
    head: Mapping[str, Any] = json.loads(data[_HEAD.size : _HEAD.size + length])
    if head["format"] != FORMAT:
        raise ValueError(f"the part has format {head['format']}; this release reads {FORMAT}")
    numbers = np.frombuffer(data, "<f8", offset=_HEAD.size + length) if head["keys"] else None
    part = Part(head["spec"], units=dict(head["units"]), files=dict(head["files"]))
    place = 0
    for kind, value, vectors, num_sums, num_maxima in head["keys"]:
        assert numbers is not None
        middle, end = place + num_sums, place + num_sums + num_maxima
        sums = PartialSums(numbers[place:middle].copy(), numbers[middle:end].copy())
        part.totals[kind, value] = Total(sums, vectors)
        place = end
    for fault in head["faults"]:
        part.add_fault(Fault(**fault))
    for problem in head["problems"]:
        part.add_problem(Problem(**problem))
    return part
