"""Reads the argument ``version_spans``, and the ``weight_versions`` of inference engines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from counterweight_rl.arguments import INT64, int_list, integer, items, shown, text
from counterweight_rl.arrays.device_array import DeviceArray
from counterweight_rl.arrays.interop import adopt
from counterweight_rl.errors import Violation, refuse

Span = tuple[int, int, int, int]
"""(sequence, start, end, policy_version)."""

_FIELDS = ("sequence", "start", "end", "policy_version")
_PARTS = ("version", "start", "end")
# Where completions have their spans: vLLM's and SGLang's objects, SGLang's meta_info, and the block
# of its OpenAI-compatible endpoints.
_PLACES = ("weight_versions", "meta_info", "sglext")
_LABEL = re.compile(r"([^0-9]*)([0-9]+)")
_WHAT = "a sequence of (sequence, start, end, policy_version), or the weight_versions of each row"


def spans_of(
    completions: Iterable[Any],
    *,
    order: Iterable[str] | Mapping[str, int] | None = None,
    offset: int | Iterable[int] = 0,
) -> list[Span]:
    """Converts an inference engine's report of its versions to ``version_spans``.

    Args:
        completions: One for each sequence of the batch: the ``weight_versions`` that vLLM or SGLang
            returned (dicts or objects with version, start and end, or SGLang's lists of the three),
            or an object or dict that has them, such as a completion or its ``meta_info``; None:
            unknown. start and end count the sampled tokens of the completion.
        order: Versions of labels: a list in which a label's index is its version, or a mapping.
            None: a label is an integer, or text without digits before one, the same for all
            ("step-123").
        offset: Position of the first sampled token in its row: of all rows, or one for each.

    Returns:
        The spans with a known version; a version None, "" or -1 is unknown.

    Raises:
        TypeError: Something else; the message names it.
        ValueError: A label without a version, or labels of several kinds.
    """
    return _spans("completions", items("completions", completions, "a sequence"), order, offset)


def read_staleness(staleness: Any) -> tuple[int, Any]:
    """Returns a policy_version, and the policy_versions that are so much older.

    Args:
        staleness: Integers >= 0 of the shape of response_mask, or one for all tokens; then the
            versions are None, all of them 0.

    Raises:
        TypeError: It is something else.
        ValueError: One is below 0.
    """
    if isinstance(staleness, int | np.integer):
        newest, least, versions = integer("staleness", staleness, INT64), staleness, None
    else:
        array = adopt("staleness", staleness)
        if isinstance(array, DeviceArray):
            raise TypeError("staleness must be numpy's, torch's or an integer")
        newest, least = (int(array.max()), int(array.min())) if 0 not in array.shape else (0, 0)
        versions = newest - array
    if least < 0:
        raise ValueError(f"staleness must be >= 0; got {least}")
    return newest, versions


def read_spans(spans: Any, num_sequences: int) -> list[dict[str, int]]:
    """Returns the messages of the spans; the server checks their numbers.

    Args:
        spans: Of four integers, or of ``spans_of`` the first argument.
        num_sequences: Rows of the batch.

    Raises:
        TypeError: They are neither.
        ValueError: A number does not fit 64 bits, or a label has no version.
        InvalidRequestError: Weight versions of another number of rows.
    """
    name = "version_spans"
    rows = items(name, spans, _WHAT)
    read: list[Any]
    if any(_is_row(row) for row in rows):
        if len(rows) != num_sequences:
            problem = f"has weight versions of {len(rows)} sequences; the batch has {num_sequences}"
            raise refuse([Violation(name, problem)])
        read = _spans(name, rows, None, 0)
    else:
        read = [_numbers(f"{name}[{i}]", row) for i, row in enumerate(rows)]
    return [dict(zip(_FIELDS, span, strict=True)) for span in read]


def _is_row(row: Any) -> bool:
    """Whether it is the weight versions of a row; spans of four integers are none."""
    if isinstance(row, (list, tuple)):
        return not row or not isinstance(row[0], (int, np.integer, float, str))
    return row is None or isinstance(row, Mapping) or any(hasattr(row, place) for place in _PLACES)


def _numbers(name: str, span: Any) -> list[int]:
    numbers = int_list(name, span)
    if len(numbers) != len(_FIELDS):
        raise TypeError(f"{name} must be ({', '.join(_FIELDS)}), not {shown(span)}")
    return numbers


def _spans(
    name: str,
    rows: Sequence[Any],
    order: Iterable[str] | Mapping[str, int] | None,
    offset: int | Iterable[int],
) -> list[Span]:
    labels = _Labels(order)
    offsets = (
        [integer("offset", offset)] * len(rows)
        if not isinstance(offset, Iterable)
        else int_list("offset", offset)
    )
    if len(offsets) != len(rows):
        raise ValueError(f"offset has {len(offsets)} elements for {len(rows)} sequences")
    made = []
    for sequence, (row, first) in enumerate(zip(rows, offsets, strict=True)):
        path = f"{name}[{sequence}]"
        for i, span in enumerate(_weight_versions(path, row)):
            label, start, end = _parts(f"{path}[{i}]", span)
            version = labels.version(f"{path}[{i}].version", label)
            start = integer(f"{path}[{i}].start", start)
            end = integer(f"{path}[{i}].end", end)
            # A completion without tokens has an empty span.
            if version is not None and start != end:
                made.append((sequence, first + start, first + end, version))
    return made


def _weight_versions(path: str, row: Any) -> list[Any]:
    """Returns the spans of one completion; None has none."""
    for _ in _PLACES:
        if row is None or isinstance(row, (list, tuple)):
            break
        for place in _PLACES:
            found = _get(row, place)
            if found is not _ABSENT:
                row = found
                break
        else:
            # A completion of an engine that was given no label.
            if isinstance(row, Mapping) and _get(row, _PARTS[0]) is _ABSENT:
                return []
            kind = type(row).__name__
            raise TypeError(f"{path} must be a list of weight versions, or have them, not {kind}")
    return [] if row is None else items(path, row, "a list of weight versions")


_ABSENT = object()


def _get(source: Any, name: str) -> Any:
    if isinstance(source, Mapping):
        return source.get(name, _ABSENT)
    return getattr(source, name, _ABSENT)


def _parts(path: str, span: Any) -> tuple[Any, Any, Any]:
    if isinstance(span, (list, tuple)) and not hasattr(span, "_fields"):
        found = list(span)
    else:
        found = [part for name in _PARTS if (part := _get(span, name)) is not _ABSENT]
    if len(found) != len(_PARTS):
        raise TypeError(f"{path} must have {', '.join(_PARTS)}; it is {shown(span)}")
    return found[0], found[1], found[2]


class _Labels:
    """The versions behind the labels of one call."""

    def __init__(self, order: Iterable[str] | Mapping[str, int] | None) -> None:
        self._prefix: str | None = None
        self._known: dict[str, int] | None = None
        if isinstance(order, Mapping):
            self._known = {
                text("order", label): integer(f"order[{label!r}]", version)
                for label, version in order.items()
            }
        elif order is not None:
            listed = [text("order", label) for label in items("order", order, "a list of labels")]
            self._known = {label: version for version, label in enumerate(listed)}
            if len(self._known) != len(listed):
                raise ValueError("order has a label twice")

    def version(self, path: str, label: Any) -> int | None:
        """Returns a label's version; None: unknown."""
        if label is None or label == "":
            return None
        if not isinstance(label, str):
            number = integer(path, label)
            if self._known is None:
                return self._checked(path, number)
            label = str(number)
        if self._known is not None:
            if label not in self._known:
                raise ValueError(f"{path}: the label {shown(label)} is not in order")
            return self._checked(path, self._known[label])
        if label == "-1":
            return None
        found = _LABEL.fullmatch(label)
        if found is None:
            raise ValueError(
                f"{path}: the label {shown(label)} has no single number at its end; pass "
                "version_spans=cw.spans_of(completions, order=[labels])"
            )
        if self._prefix is None:
            self._prefix = found[1]
        if found[1] != self._prefix:
            raise ValueError(
                f"{path}: the label {shown(label)} begins otherwise than others, with "
                f"{shown(self._prefix)}; pass version_spans=cw.spans_of(completions, "
                "order=[labels])"
            )
        # int() refuses text of thousands of digits with a ValueError that names nothing.
        return self._checked(path, int(found[2]) if len(found[2]) < 19 else 1 << 63)

    def _checked(self, path: str, version: int) -> int | None:
        return None if version == -1 else integer(path, version, (0, (1 << 63) - 1))
