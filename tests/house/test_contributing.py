"""CONTRIBUTING.md names files that exist."""

from __future__ import annotations

import re

import pytest
from contributing import PAGE, RECIPES, ROOT, SECTIONS, names, paths


@pytest.mark.parametrize("title", SECTIONS)
def test_the_files_of_a_section_exist(title: str) -> None:
    named = names(SECTIONS[title])
    assert len(named) >= (5 if title in RECIPES else 1)
    assert [name for name in named if not paths(name, SECTIONS[title])] == []


def test_there_is_a_recipe_for_each_extension() -> None:
    things = (
        "a surrogate",
        "a statistic",
        "a preset",
        "a dialect",
        "a metric",
        "an option",
        "an RPC",
        "a client",
    )
    assert list(RECIPES) == [f"Add {thing}" for thing in things]


@pytest.mark.parametrize("title", RECIPES)
def test_steps_are_numbered_in_order(title: str) -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", RECIPES[title], re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


@pytest.mark.parametrize(
    "name", ["DppoTv", "Surrogates", "kDriftGauges", "kCorrectedCounters", "RunDrift"]
)
def test_named_identifiers_exist(name: str) -> None:
    sources = [*ROOT.glob("kernels/surrogates/*.h"), ROOT / "server/observe/drift_table.h"]
    assert f"`{name}`" in PAGE
    assert any(re.search(rf"\b{name}\b", path.read_text()) for path in sources)
