"""The site's links hold, and its reference has every public name of the Python client."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import counterweight_rl as cw

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "deploy/site"))

import collect  # noqa: E402

FILES = frozenset(
    {"README.md", "a/README.md", "a/b.md", "a/b.png", "a/c.cc", ".github/S.md", "a/n.ipynb"}
)
FOLDERS = frozenset({"a", "."})


def links(page: str, text: str) -> str:
    return collect.linked(page, text, FILES, FOLDERS)[0]


def test_links_between_pages_stay() -> None:
    assert links("README.md", "[x](a/b.md#y) [`a/`](a/) [z](#z)") == (
        "[x](a/b.md#y) [`a/`](a/README.md) [z](#z)"
    )
    assert links("a/b.md", "[x](../.github/S.md) [n](n.ipynb)") == "[x](../S.md) [n](n.md)"
    assert links(".github/S.md", "[x](../a/b.md#y)") == "[x](a/b.md#y)"


def test_other_files_are_addresses() -> None:
    assert links("a/b.md", "[`a/c.cc`](c.cc)") == f"[`a/c.cc`]({collect.HOST}/blob/main/a/c.cc)"
    assert links("a/b.md", "[x](https://a.invalid/b.md)") == "[x](https://a.invalid/b.md)"
    # Refused by mkdocs.
    assert links("a/b.md", "[x](none.md)") == "[x](none.md)"


def test_code_has_no_links() -> None:
    text = "`a[0](c.cc)`\n\n```\nb[0](c.cc)\n```\n"
    assert links("a/b.md", text) == text


def test_pictures_are_copied() -> None:
    text = "![x](a/b.png)"
    assert collect.linked("README.md", text, FILES, FOLDERS) == (text, {"a/b.png"})


def test_a_notebook_is_a_page() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# A"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\n"]}]},
    ]
    page = collect.from_notebook(json.dumps({"cells": cells}))
    assert page == "# A\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n"


def test_the_reference_has_every_public_name() -> None:
    texts = [path.read_text() for path in (ROOT / "deploy/site/own/api").glob("*.md")]
    named = {
        name for text in texts for name in re.findall(r"^::: counterweight_rl\.(\w+)$", text, re.M)
    }
    assert set(cw.__all__) - named == {"__version__"}
