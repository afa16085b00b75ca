#!/usr/bin/env python3
"""Copies the repository's pages into the folder that mkdocs reads. Usage: collect.py FOLDER

Links between pages stay as they are. Links to other files become addresses on the repository's host, except pictures, which
are copied. A notebook becomes a page with its saved output.
"""

from __future__ import annotations

import json
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST = "https://github.com/counterweight/counterweight"
PICTURE = (".png", ".svg")
# A fence, code within a line, or the target of a link.
LINK = re.compile(r"(?ms)^ *```.*?^ *```|`[^`\n]+`|(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
OWN = pathlib.Path(__file__).with_name("own")


def tracked() -> list[str]:
    """Returns the names of the repository's files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def shown_as(name: str) -> str:
    """Returns the name of a page in the site: mkdocs leaves out folders that begin with a dot."""
    return name.removeprefix(".github/").replace(".ipynb", ".md")


def from_notebook(text: str) -> str:
    """Returns a notebook as a page."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(one["text"]) for one in cell["outputs"]).rstrip()
        if printed:
            parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts) + "\n"


def linked(
    page: str, text: str, files: frozenset[str], folders: frozenset[str]
) -> tuple[str, set[str]]:
    """Returns the text with links that hold in the site, and the pictures that it shows."""
    pictures: set[str] = set()

    def target(match: re.Match[str]) -> str:
        to, anchor = match[1], match[2] or ""
        if not to or ":" in to:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), to))
        if f"{path}/README.md" in files:
            path += "/README.md"
        if path in files and path.endswith((".md", ".ipynb", *PICTURE)):
            pictures.update({path} if path.endswith(PICTURE) else ())
            return (
                posixpath.relpath(shown_as(path), posixpath.dirname(shown_as(page)) or ".") + anchor
            )
        if path in files or path in folders:
            return f"{HOST}/{'blob' if path in files else 'tree'}/main/{path}{anchor}"
        return match[0]  # which mkdocs refuses

    return LINK.sub(target, text), pictures


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    files = frozenset(tracked())
    folders = frozenset(
        str(above) for name in files for above in pathlib.PurePosixPath(name).parents
    )
    pictures: set[str] = set()
    for name in sorted(files):
        if not name.endswith((".md", ".ipynb")) or name.startswith("deploy/site/"):
            continue
        text = (ROOT / name).read_text()
        if name.endswith(".ipynb"):
            text = from_notebook(text)
        # Python's Markdown nests lists by four spaces.
        text = re.sub(r"(?m)^   ([-*] |\S)", r"    \1", text)
        text, shown = linked(name, text, files, folders)
        pictures |= shown
        path = out / shown_as(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in sorted(pictures):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, out / name)
    shutil.copytree(OWN, out, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
