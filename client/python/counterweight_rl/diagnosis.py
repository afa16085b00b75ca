"""The findings of a batch's examination."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from counterweight_rl import attribution, audit_rows, messages, shadow
from counterweight_rl.attribution import Attribution
from counterweight_rl.audit_rows import AuditedDrift
from counterweight_rl.shadow import Shadow

_WIDTH = 80


@dataclass(frozen=True)
class Finding:
    """One fault of a batch.

    Attributes:
        name: Which one, such as "shifted"; kernels/doctor/FINDINGS.md has the table.
        severity: "error": the batch is wrong. "warning": rarely meant so. "note": may be meant so.
        confidence: In [0, 1]; 1 where counts prove it.
        stream: The argument with the fault, such as "old_log_probs". "": no single one.
        observed: Distance of the two log-probs of a token, capped at 4 nats, mean, as given. None
            where none is measured.
        repaired: The same with the fault undone. None where there is nothing to undo.
        evidence: Other numbers by name.
        sequence: Index of the first example's sequence. None: no single one.
        position: The example's position in its sequence.
        sentence: What is found and the way out.
    """

    name: str
    severity: str
    confidence: float
    stream: str
    observed: float | None
    repaired: float | None
    evidence: Mapping[str, float] = field(repr=False)
    sequence: int | None
    position: int | None
    sentence: str = field(repr=False)

    def __str__(self) -> str:
        head = f"{self.severity:8}{self.name} (confidence {self.confidence:.2g})"
        indent = " " * 8
        text = textwrap.wrap(self.sentence, _WIDTH, initial_indent=indent, subsequent_indent=indent)
        return "\n".join([head, *text])


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """A batch's examination; ``print`` shows it.

    Attributes:
        findings: In the order of examination, exact facts first. None does not prove that nothing
            is wrong.
        tokens: Those with response_mask 1 and finite log-probs.
        examined_tokens: Those of them that were examined one by one: all, or those of whole
            sequences of at most 65,536 positions. Integers are counted over all.
        examined_sequences: Sequences with such tokens.
        warnings: Sentences about arguments that are not examined.
        request_id: Identifier of the call.
        attribution: Why the examined tokens drift. None without any, and from older servers.
        audit: The drift of the audited rows. None without ``audit``, and, with a warning,
            from older servers.
        shadows: What each of ``shadows`` would do, in their order. Empty, with a warning, from
            older servers.
    """

    findings: Sequence[Finding]
    tokens: int
    examined_tokens: int
    examined_sequences: int
    warnings: Sequence[str]
    request_id: str
    attribution: Attribution | None
    audit: AuditedDrift | None = None
    shadows: Sequence[Shadow] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no finding but notes."""
        return all(each.severity == "note" for each in self.findings)

    def has(self, name: str) -> bool:
        """Whether there is a finding of that name."""
        return any(each.name == name for each in self.findings)

    def __str__(self) -> str:
        count = len(self.findings)
        found = f"{count or 'no'} finding{'' if count == 1 else 's'}"
        head = f"{found} in {self.tokens:,} tokens"
        if self.examined_tokens == self.tokens:
            head += f" of {self.examined_sequences:,} sequences"
        else:
            head += (
                f"; {self.examined_tokens:,} of them, in {self.examined_sequences:,} sequences, "
                "were examined one by one"
            )
        lines = [*textwrap.wrap(head, _WIDTH), *map(str, self.findings)]
        if self.attribution is not None:
            lines += self.attribution.lines()
        if self.audit is not None:
            lines += textwrap.wrap(f"engine and trainer: {self.audit}", _WIDTH)
        if self.shadows:
            lines += shadow.lines(self.shadows)
        return "\n".join(lines)

    def __repr__(self) -> str:
        names = ", ".join(each.name for each in self.findings) or "nothing found"
        return f"<Diagnosis: {names}; {self.tokens} tokens>"


def read(answer: messages.Message) -> Diagnosis:
    """Returns the diagnosis in an answer's message."""
    made = ("findings", "attribution", "audit", "shadows")
    named = [each.name for each in fields(Diagnosis) if each.name not in made]
    found: dict[str, Any] = {name: messages.field(Diagnosis, name, answer) for name in named}
    return Diagnosis(
        findings=tuple(map(_finding, answer.get("findings", ()))),
        attribution=attribution.read(answer.get("attribution")),
        audit=None if "audit" not in answer else audit_rows.read(answer["audit"]),
        shadows=shadow.read(answer.get("shadows", ())),
        **found,
    )


def reader(*, audit: bool, shadows: bool) -> Callable[[messages.Message], Diagnosis]:
    """Returns ``read``, with a warning of what was sent and an older server ignored."""

    def read_all(answer: messages.Message) -> Diagnosis:
        found = read(answer)
        ignored = []
        if audit and found.audit is None:
            ignored.append("audit was sent, which this server ignores")
        if shadows and not found.shadows:
            ignored.append("shadows were sent, which this server ignores")
        return replace(found, warnings=(*found.warnings, *ignored)) if ignored else found

    return read_all


def _finding(message: messages.Message) -> Finding:
    values = {each.name: messages.field(Finding, each.name, message) for each in fields(Finding)}
    # Choices that only a newer server knows stay as they are.
    values["severity"] = values["severity"].removeprefix("SEVERITY_").lower()
    values["stream"] = values["stream"].removeprefix("TENSOR_ROLE_").lower()
    if values["stream"] == "unspecified":
        values["stream"] = ""
    return Finding(**values)
