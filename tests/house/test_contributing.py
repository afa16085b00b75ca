"""CONTRIBUTING.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
RECIPES = [section for section in SECTIONS if section.startswith("Add ")]
# A path in code: with a slash, or with the ending of a source or a page.
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:cc|h|py|go|md|yml|proto|txt))`")


def files(recipe: str) -> list[str]:
    """The paths that a recipe names; a bare file name lies in a folder named before it."""
    return [name for name in FILE.findall(recipe) if "<" not in name]


def exists(name: str, recipe: str) -> bool:
    if (ROOT / name).exists():
        return True
    folders = {str(Path(other).parent) for other in files(recipe) if "/" in other}
    folders |= {other.rstrip("/") for other in files(recipe) if other.endswith("/")}
    return "/" not in name and any((ROOT / folder / name).exists() for folder in folders)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0])
def test_the_files_of_a_section_exist(section: str) -> None:
    named = files(section)
    assert len(named) >= (5 if section in RECIPES else 1)
    assert [name for name in named if not exists(name, section)] == []


def test_there_is_a_recipe_for_each_extension() -> None:
    titles = [recipe.splitlines()[0] for recipe in RECIPES]
    things = (
        "a surrogate",
        "a statistic",
        "a preset",
        "a dialect",
        "a metric",
        "an RPC",
        "a client",
    )
    assert titles == [f"Add {thing}" for thing in things]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.splitlines()[0])
def test_steps_are_numbered_in_order(recipe: str) -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", recipe, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


@pytest.mark.parametrize(
    "name", ["DppoTv", "Surrogates", "kDriftGauges", "kCorrectedCounters", "RunDrift"]
)
def test_named_identifiers_exist(name: str) -> None:
    sources = [*ROOT.glob("kernels/surrogates/*.h"), ROOT / "server/observe/drift_table.h"]
    assert f"`{name}`" in PAGE
    assert any(re.search(rf"\b{name}\b", path.read_text()) for path in sources)
