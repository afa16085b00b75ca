"""torch_tables.py with results of known ratios."""

from __future__ import annotations

from typing import Any

from table_parts import HEADLINE, LONG
from torch_tables import method_table, targets

NO_METRICS = f"{HEADLINE}, no metrics"


def results() -> dict[str, Any]:
    case = {"isa": "v3", "tokens": 1_000_000, "length": LONG}
    kernels = [
        {**case, "method": method, "ns_per_token": ns}
        for method, ns in ((HEADLINE, 2.0), ("none", 1.0), (NO_METRICS, 1.0))
    ]
    compiled = [
        {**case, "method": method, "metrics": metrics, "cpu_ns_per_token": ns}
        for method, metrics, ns in (
            (HEADLINE, "verl", 16.0),
            ("none", "verl", 3.0),
            (NO_METRICS, None, 4.0),
            (HEADLINE, "same", 10.0),
            ("none", "same", 7.0),
        )
    ]
    return {"tokens": 1_000_000, "kernels": kernels, "torch": {"rows": [], "compiled": compiled}}


def test_targets_compare_works_with_works_of_the_same_metrics() -> None:
    found = targets(results())
    assert [(what.split(", v3")[0], *rest) for what, *rest in found] == [
        ("every method with metrics, torch with the same", ">= 4 x", "5.0 to 7.0 x", "met"),
        ("every method with metrics, torch with verl's", ">= 4 x", "3.0 to 8.0 x", "**missed**"),
        ("every method without metrics", ">= 4 x", "4.0 to 4.0 x", "met"),
    ]


def test_a_method_has_one_row_with_a_column_for_each_kind_of_metrics() -> None:
    header, _, *rows = (
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in method_table(results(), LONG).splitlines()
    )
    assert header[1:] == [
        "compiled, AVX2, verl's metrics",
        "compiled, AVX2, same metrics",
        "v3",
        "verl's metrics / v3",
        "same metrics / v3",
    ]
    assert rows == [
        [HEADLINE, "16.0", "10.0", "2.00", "8.0 x", "5.0 x"],
        ["none", "3.0", "7.0", "1.00", "3.0 x", "7.0 x"],
        [NO_METRICS, "-", "4.0", "1.00", "-", "4.0 x"],
    ]
