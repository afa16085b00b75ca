"""``version_spans``, and the weight_versions of inference engines."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import counterweight_rl as cw
from counterweight_rl import calls


@dataclass
class Spanned:
    """vLLM's and SGLang's span of a version."""

    version: str | None
    start: int
    end: int


class Named(NamedTuple):
    start: int
    end: int
    version: str


def as_dict(span: Spanned) -> Any:
    return {"version": span.version, "start": span.start, "end": span.end}


def as_list(span: Spanned) -> Any:
    """SGLang's objects are lists in JSON."""
    return [span.version, span.start, span.end]


def in_completion(spans: Any) -> Any:
    return SimpleNamespace(text="...", weight_versions=spans)


def in_meta_info(spans: Any) -> Any:
    return {"text": "...", "meta_info": {"weight_version": "7", "weight_versions": spans}}


def in_endpoint(spans: Any) -> Any:
    return SimpleNamespace(choices=[], sglext={"weight_versions": spans})


ROWS = [[Spanned("6", 0, 2), Spanned("7", 2, 5)], None, [Spanned("7", 0, 4)]]
EXPECTED = [(0, 0, 2, 6), (0, 2, 5, 7), (2, 0, 4, 7)]


def sent(spans: Any) -> list[tuple[int, ...]]:
    x = np.full((3, 5), -1, np.float32)
    call = calls.correct(
        rollout_log_probs=x,
        old_log_probs=x,
        response_mask=np.ones((3, 5), bool),
        method="token_tis",
        policy_version=7,
        version_spans=spans,
    )
    assert call.correction is not None
    return [tuple(span.values()) for span in call.correction.head["version_spans"]]


@pytest.mark.parametrize("place", [list, in_completion, in_meta_info, in_endpoint])
@pytest.mark.parametrize("form", [lambda span: span, as_dict, as_list])
@pytest.mark.parametrize("prefix", ["", "step-", "v", "ckpt_00"])
def test_spans_of_engines_are_taken_as_they_are(place: Any, form: Any, prefix: str) -> None:
    rows = [
        row and place([form(Spanned(f"{prefix}{s.version}", s.start, s.end)) for s in row])
        for row in ROWS
    ]
    assert sent(rows) == EXPECTED
    assert sent(tuple(rows)) == EXPECTED
    assert cw.spans_of(rows) == EXPECTED
    assert sent(cw.spans_of(rows)) == EXPECTED


def test_spans_of_four_integers() -> None:
    for spans in (EXPECTED, [list(s) for s in EXPECTED], np.array(EXPECTED), iter(EXPECTED)):
        assert sent(spans) == EXPECTED
    assert sent([]) == []


@pytest.mark.parametrize("order", [["base", "6", "abc"], {"6": 1, "abc": 2}])
def test_labels_in_an_order(order: Any) -> None:
    rows = [[Spanned("6", 0, 2), Spanned("abc", 2, 5)], [as_dict(Spanned("abc", 0, 1))]]
    assert cw.spans_of(rows, order=order) == [(0, 0, 2, 1), (0, 2, 5, 2), (1, 0, 1, 2)]


def test_what_is_unknown_is_left_out() -> None:
    spans = [Spanned(None, 0, 1), Spanned("", 1, 2), Spanned("-1", 2, 3), [-1, 3, 4]]
    empty = [Spanned("7", 0, 0)]  # of a completion without tokens
    assert cw.spans_of([spans, [], None, empty, in_completion(None)]) == []
    # SGLang without a label has no weight_versions.
    assert cw.spans_of([{"meta_info": {"id": "x"}}, {"id": "x"}]) == []


def test_rows_that_begin_with_a_prompt() -> None:
    expected = [(0, 3, 5, 6), (0, 5, 8, 7), (2, 3, 7, 7)]
    assert cw.spans_of(ROWS, offset=3) == expected
    expected[2] = (2, 9, 13, 7)
    for offset in ([3, 0, 9], np.array([3, 0, 9])):
        assert cw.spans_of(ROWS, offset=offset) == expected


def test_named_parts_are_read_by_name() -> None:
    assert cw.spans_of([[Named(0, 2, "6")]]) == [(0, 0, 2, 6)]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([[Spanned("default", 0, 1)]], r"\[0\]\[0\]\.version: the label 'default' has no single"),
        ([[Spanned("a1b2c3", 0, 1)]], "has no single number"),
        ([[Spanned("2026-11-27", 0, 1)]], "has no single number"),
        ([[Spanned("7", 0, 1)], [Spanned("v7", 0, 1)]], r"\[1\]\[0\]\.version: .* begins otherw"),
        ([[Spanned("9" * 40, 0, 1)]], "must be from 0 to"),
        ([[Spanned("9" * 5000, 0, 1)]], "must be from 0 to"),
        ([[Spanned(-2, 0, 1)]], "must be from 0 to"),  # type: ignore[arg-type]
        ([[Spanned(1.5, 0, 1)]], r"\[0\]\[0\]\.version must be an int, not float"),  # type: ignore[arg-type]
        ([[Spanned(True, 0, 1)]], "must be an int, not bool"),
        ([[Spanned("7", 0.0, 1)]], r"\[0\]\[0\]\.start must be an int"),  # type: ignore[arg-type]
        ([[Spanned("7", 0, None)]], r"\[0\]\[0\]\.end must be an int"),  # type: ignore[arg-type]
        ([[{"version": "7", "start": 0}]], r"\[0\]\[0\] must have version, start, end"),
        ([[object()]], r"\[0\]\[0\] must have version, start, end"),
        ([Spanned("7", 0, 1)], r"\[0\] must be a list of weight versions"),
        ([as_dict(Spanned("7", 0, 1))], r"\[0\] must be a list of weight versions"),
        ([[[0, 1, "7"]]], r"\[0\]\[0\]\.end must be an int"),
    ],
)
def test_errors_name_the_span(rows: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem) as caught:
        cw.spans_of(rows)
    assert str(caught.value).startswith("completions[")
    with pytest.raises((TypeError, ValueError), match=r"version_spans\[") as caught:
        sent([*rows, *[None] * (3 - len(rows))])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"completions": 5}, "completions must be a sequence, not int"),
        ({"completions": ROWS, "offset": [1]}, "offset has 1 elements for 3 sequences"),
        ({"completions": ROWS, "offset": 1.5}, "offset must be an int"),
        ({"completions": ROWS, "order": "67"}, "order must be a list of labels"),
        ({"completions": ROWS, "order": ["6", "7", "6"]}, "order has a label twice"),
        ({"completions": ROWS, "order": ["6"]}, "the label '7' is not in order"),
        ({"completions": ROWS, "order": [6, 7]}, "order must be a str"),
        ({"completions": ROWS, "order": {"6": "1"}}, r"order\['6'\] must be an int"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        cw.spans_of(**arguments)


def test_versions_of_another_number_of_rows() -> None:
    with pytest.raises(cw.InvalidRequestError, match="of 2 sequences; the batch has 3"):
        sent(ROWS[:2])
