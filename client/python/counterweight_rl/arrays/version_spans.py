"""Reads the argument ``version_spans``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from counterweight_rl.arrays.batch import int_list
from counterweight_rl.contract import correction_service_pb2 as service_pb2

_FIELDS = ("sequence", "start", "end", "policy_version")


def add_spans(spans: Iterable[Sequence[int]], head: service_pb2.CorrectRequest) -> None:
    """Adds the spans to the request; the server checks their numbers.

    Raises:
        TypeError: A span is not four integers.
        ValueError: A number does not fit 64 bits.
    """
    rows: Any = spans.tolist() if hasattr(spans, "tolist") else spans
    for i, span in enumerate(rows):
        numbers = int_list(f"version_spans[{i}]", span)
        if len(numbers) != len(_FIELDS):
            raise TypeError(f"version_spans[{i}] must be ({', '.join(_FIELDS)}), not {span!r}")
        message = head.version_spans.add()
        for name, number in zip(_FIELDS, numbers, strict=True):
            setattr(message, name, number)
