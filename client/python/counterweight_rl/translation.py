"""Translates the server's messages about a request into the client's arguments.

The server names fields and enums of proto/counterweight/v1, and RPCs. This table alone translates
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from counterweight_rl import choices
from counterweight_rl.contract.tensors import TensorRole

_DIALECT = "method.dialect."

_ROLES = {role.name: role.name.lower() for role in TensorRole}
# Prefixes of paths, and the arguments of these paths. The longest prefix that ends at a name's end
# is replaced.
_PATHS = {
    "method.preset.calm_quantiles": "method.parameters",
    "method.preset.name": "method",
    "method.preset": "method",
    "method.config.importance_weight.upper_calm_quantile": "method.importance_weight.upper",
    "method.config": "method",
    "method.dialect": "method",
    "layout.padded.num_sequences": "response_mask.shape[0]",
    "layout.padded.length": "response_mask.shape[1]",
    "layout.packed.sequence_lengths": "sequence_lengths",
    "layout.packed.padded_length": "padded_length",
    "layout.packed": "sequence_lengths",
    "layout.padded": "response_mask",
    "layout": "response_mask",
    "non_finite_policy": "non_finite",
    "omit_metrics": "metrics",
    "audit.sums": "audit.earlier",
    "compute_loss": "outputs['loss']",
    **{f"labels.{name}": name for name in ("run", "replica", "policy_version", "step")},
    **{f"tensors[{role}]": name for role, name in _ROLES.items()},
}
_RPCS = {
    "ListMethods": "client.list_methods()",
    "GetServerInfo": "client.server_info()",
    "MergeSums": "client.merge()",
    "Diagnose": "client.diagnose()",
    "ReportStep": "client.report_step()",
    "DeclareRun": "client.declare_run()",
    "GroupAdvantages": "client.group_advantages()",
    "CorrectStream": 'transport="stream"',
    "Publish": "publish=",
}
_CHOICES = {
    member.name: f'"{member.value}"'
    for enum in vars(choices).values()
    if isinstance(enum, type) and issubclass(enum, choices.Choice)
    for member in enum
}
_PHRASES = {
    "num_sequences * length": "shape[0] * shape[1]",
    "non_finite_policy": "non_finite",
    "labels.policy_version": "policy_version",
    "labels.step": "step",
}


def _any_of(texts: Sequence[str]) -> str:
    return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))


_PATH = re.compile(rf"(?:{_any_of(list(_PATHS))})(?![A-Za-z0-9_])")
_RPC = re.compile(rf"\b(?:{_any_of(list(_RPCS))})\b")
_WORDS = {**_CHOICES, **_ROLES, **_PHRASES, **_RPCS}
_WORD = re.compile(rf"(?<![\w.\[])(?:{_any_of(list(_WORDS))})(?!\w)")
# Matches an argument and its value: 'non_finite "drop"'.
_SETTING = re.compile(r'\b(non_finite|denominator) (?=")')
# Matches from the first quoted name to the end of the last one: text of callers may contain quotes.
# A quotation mark inside or after a word is an apostrophe.
_QUOTED = re.compile(r"(?<!\w)'.*'(?!\w)", re.DOTALL)
_NUMBERED = re.compile(r"(tensors|outputs)\[(\d+)\]")
_COUNT = re.compile(r"(\d+ violations): ")


@dataclass(frozen=True)
class Sent:
    """The parts of a request that paths name by index.

    Attributes:
        tensors: The arguments behind ``tensors``, in their order.
        outputs: The names of ``outputs``, in their order.
    """

    tensors: Sequence[str] = ()
    outputs: Sequence[str] = ()


def argument(path: str, sent: Sent) -> str:
    """Returns the argument behind a path of the request, and its part; else the path."""
    numbered = _NUMBERED.match(path)
    if numbered:
        kind, index = numbered[1], int(numbered[2])
        names = sent.tensors if kind == "tensors" else sent.outputs
        if index >= len(names):
            return path
        return names[index] if kind == "tensors" else f"outputs[{names[index]!r}]"
    found = _PATH.match(path)
    return _PATHS[found[0]] + path[found.end() :] if found else path


def description(text: str, path: str) -> str:
    """Translates a violation's description; quoted text stays unchanged."""
    # Another system's block has its own vocabulary.
    pattern = _RPC if path.startswith(_DIALECT) else _WORD
    quoted = _QUOTED.search(text)
    begin, end = quoted.span() if quoted else (len(text), len(text))

    def translate(part: str) -> str:
        part = pattern.sub(lambda word: _WORDS[word[0]], part.replace(_DIALECT, "method."))
        return _SETTING.sub(r"\1=", part)

    return translate(text[:begin]) + text[begin:end] + translate(text[end:])


def warning(text: str) -> str:
    """Translates a warning of an answered request; paths become arguments."""
    return text.replace(_DIALECT, "method.", 1)


def refusal(text: str) -> str:
    """Translates a refusal for lack of room or time."""
    return _RPC.sub(lambda word: _RPCS[word[0]], text)


def headline(message: str, first_path: str, violations: Sequence[str]) -> str:
    """Returns the message of an invalid request without the violations' own text.

    The server repeats the violations in its message: "2 violations: FIELD: TEXT; FIELD: TEXT".

    Args:
        message: The server's message.
        first_path: The first violation's path as the server wrote it.
        violations: Argument and description of each, translated.
    """
    counted = _COUNT.match(message)
    rest = message[counted.end() :] if counted else message
    # Messages are ASCII; details contain the original text.
    path = re.sub(rb"[^ -~]", b"?", first_path.encode()).decode()
    if not path or not rest.startswith(path):
        return message
    return f"{counted[1]}:" if counted else violations[0]
