"""The sections of CONTRIBUTING.md, and the files that they name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = {
    section.splitlines()[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}
RECIPES = {title: section for title, section in SECTIONS.items() if title.startswith("Add ")}
# A path in code: with a slash, or with the ending of a source or a page.
_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:cc|h|py|go|md|yml|proto|txt))`")


def names(section: str) -> list[str]:
    """The paths that a section names; a bare file name lies in a folder named beside it."""
    return [name for name in _FILE.findall(section) if "<" not in name]


def paths(name: str, section: str) -> set[str]:
    """The files and folders of the tree that one of a section's names can be."""
    folders = {""}
    if "/" not in name:
        folders |= {other.rpartition("/")[0] for other in names(section)}
    found = {f"{folder}/{name}".lstrip("/") for folder in folders}
    return {path for path in found if (ROOT / path).exists()}
