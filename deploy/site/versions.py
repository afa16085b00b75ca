#!/usr/bin/env python3
"""Builds the site of this tree, ``dev``, and of each release beside it. Usage: versions.py FOLDER

FOLDER gets a folder for each version; ``latest``, a copy of the newest release; ``versions.json``, which the theme's
switcher reads; a page that leads to ``latest``, or to ``dev`` before the first release; and a page for wrong addresses. A
page's canonical address is that in ``latest``, if ``latest`` has the page. Links that are dead or leave their version
fail. A release is built again only if its tag names another commit.
"""

from __future__ import annotations

import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where the folder would be published.
ADDRESS = "https://counterweight.github.io/counterweight/"
CANONICAL = re.compile(r'(<link rel="canonical" href=")[^"]*')
COMMIT = "commit"  # the file of a release with the commit that it was built from


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def newest_first(tags: list[str]) -> list[str]:
    """Returns the releases among the tags; v0.10.0 before v0.9.0."""
    found = (re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)", tag) for tag in tags)
    numbers = sorted((tuple(map(int, one.groups())) for one in found if one), reverse=True)
    return [".".join(map(str, one)) for one in numbers]


def build(tree: pathlib.Path, out: pathlib.Path) -> None:
    """Builds the site of a tree into ``out``, named by the version."""
    pages = tree / "build/site-pages"
    subprocess.run([sys.executable, str(tree / "deploy/site/collect.py"), str(pages)], check=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"),
            *("--config-file", str(tree / "deploy/site/mkdocs.yml"), "--site-dir", str(out)),
        ],
        check=True,
        env={**os.environ, "SITE_URL": f"{ADDRESS}{out.name}/"},
    )


def build_release(version: str, out: pathlib.Path) -> None:
    commit = git("rev-parse", f"v{version}^{{commit}}").strip()
    if (out / COMMIT).is_file() and (out / COMMIT).read_text().strip() == commit:
        return
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name) / "tree"
        git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tree))
        git("-C", str(tree), "checkout", "--quiet", commit)
        build(tree, out)
    (out / COMMIT).write_text(commit + "\n")


class Links(html.parser.HTMLParser):
    """The targets of a page's links, scripts, styles and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets.update(value for name, value in attrs if name in ("href", "src") and value)


def dead_links(version: pathlib.Path) -> Iterator[str]:
    """Yields the links of a version's pages that lead to no file of the same version."""
    base = urllib.parse.urlparse(f"{ADDRESS}{version.name}/").path
    for page in sorted(version.rglob("*.html")):
        own = base + str(page.relative_to(version))
        for target in sorted(Links(page.read_text()).targets):
            parts = urllib.parse.urlparse(target)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            path = urllib.parse.unquote(urllib.parse.urljoin(own, parts.path))
            file = version / path[len(base) :]
            if file.is_dir():
                file /= "index.html"
            if not f"{path}/".startswith(base) or not file.is_file():
                yield f"{version.name}/{page.relative_to(version)} links to {target}"


def name_canonical(version: pathlib.Path, latest: pathlib.Path) -> None:
    for page in version.rglob("*.html"):
        name = page.relative_to(version)
        home = latest if (latest / name).is_file() else version
        address = f"{ADDRESS}{home.name}/{name}".removesuffix("index.html")
        page.write_text(CANONICAL.sub(rf"\g<1>{address}", page.read_text()))


def main() -> None:
    out = pathlib.Path(sys.argv[1]).resolve()
    releases = newest_first(git("tag", "--list").split())
    versions = [*releases, "dev"]
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        if old.name not in versions:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    build(ROOT, out / "dev")
    for version in releases:
        build_release(version, out / version)
    home = "dev"
    if releases:
        home = "latest"
        # That page has addresses from the root, not from its folder.
        shutil.copytree(out / releases[0], out / home, ignore=shutil.ignore_patterns("404.html"))
    for version in {*versions, home}:
        name_canonical(out / version, out / home)
    listed = [
        {"version": one, "title": one, "aliases": ["latest"] if [one] == releases[:1] else []}
        for one in versions
    ]
    (out / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (out / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Counterweight</title>'
        f'<meta http-equiv="refresh" content="0; url={home}/">'
        f'<link rel="canonical" href="{ADDRESS}{home}/"><a href="{home}/">Counterweight</a>\n'
    )
    # The one that hosts of pages show.
    shutil.copy(out / (releases or versions)[0] / "404.html", out)
    dead = [link for version in {*versions, home} for link in dead_links(out / version)]
    if dead:
        sys.exit("site: dead links, or links into another version:\n" + "\n".join(sorted(dead)))


if __name__ == "__main__":
    main()
