"""A step's report of ratios: each rank answers for the tokens that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from counterweight_rl.distributed.step_books import StepBooks

ONE = {"tokens": 4.0, "loss/ratio_min": 1.0, "loss/ratio_max": 1.0}
OTHER = {"tokens": 4.0, "loss/ratio_min": 0.9, "loss/ratio_max": 1.0}
EMPTY = {"tokens": 0.0, "loss/ratio_min": float("inf"), "loss/ratio_max": float("-inf")}
SILENT = {"tokens": 4.0}


class Client:
    """Keeps the report."""

    def report_step(self, **report: Any) -> Any:
        self.report = report
        return SimpleNamespace(warnings=())


@pytest.mark.parametrize(
    ("losses", "tokens", "all_one"),
    [
        ([ONE, ONE], 8, True),
        ([ONE, EMPTY], 4, True),
        ([EMPTY], 0, True),
        ([], 0, True),
        ([ONE, OTHER], 8, False),
        ([SILENT], 4, False),
        ([], 4, False),
        ([OTHER, EMPTY], 4, False),
    ],
)
def test_a_rank_without_tokens_leaves_the_ratios_to_the_others(
    losses: list[dict[str, float]], tokens: int, all_one: bool
) -> None:
    books = StepBooks({"run": "r", "step": 1}, 2)
    mask = np.ones((1, tokens), np.uint8)
    answer: Any = SimpleNamespace(weights=None, keep_mask=mask)
    books.issue(answer, {"response_mask": mask})
    for metrics in losses:
        books.see_ratios(SimpleNamespace(metrics=metrics))  # type: ignore[arg-type]
    client = Client()
    books.report(client)  # type: ignore[arg-type]
    assert client.report["ratio_all_one"] is all_one
    assert client.report["tokens"] == tokens
