"""Finds releases and changed code of the peers that no review has seen: the watch of ``.ci/peers``.

    watch.py newest    # every release on the index since the oldest of releases.in is in it
    watch.py changes   # code that differs between neighbouring releases is in reviewed.txt

``newest`` queries pip's index for each Python that a trainer may have: a release that needs a newer
Python than this one is invisible otherwise. ``changes`` needs the folders that ``.ci/peers`` fills.
"""

from __future__ import annotations

import collections
import itertools
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable

import changes

HERE = pathlib.Path(__file__).parent
FOLDERS = HERE.parents[1] / ".venv-peers/releases"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def listed(text: str) -> dict[str, list[str]]:
    """Returns the releases of each package of releases.in, ascending."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for name, release in re.findall(r"^([a-z-]+)==([\d.]+)$", text, re.MULTILINE):
        found[name].append(release)
    return {name: sorted(releases, key=numbers) for name, releases in found.items()}


def published(name: str, python: str) -> list[str]:
    """Returns the final releases that pip finds for this Python; a package may have none for it.

    Raises:
        RuntimeError: pip or its index does not answer.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions"]
    asked = [*command, name, "--python-version", python]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=300)
    versions = re.search(r"^Available versions: (.*)$", answer.stdout, re.MULTILINE)
    if versions is None and "No matching distribution found" in answer.stderr:
        return []
    if versions is None:
        raise RuntimeError(f"pip index versions {name} for Python {python}: {answer.stderr}")
    return [one for one in versions[1].split(", ") if re.fullmatch(r"[\d.]+", one)]


def unlisted(
    known: dict[str, list[str]], releases_for: Callable[[str, str], Iterable[str]]
) -> list[str]:
    """Returns a sentence for each release since the oldest known one that is not known."""
    found = []
    for name, releases in known.items():
        pythons: dict[str, list[str]] = collections.defaultdict(list)
        seen: set[str] = set()
        for python in PYTHONS:
            for release in releases_for(name, python):
                seen.add(release)
                if release not in releases and numbers(release) > numbers(releases[0]):
                    pythons[release].append(python)
        if not seen:
            found.append(f"{name} has no release for any Python on pip's index")
        found += [
            f"{name} {release} is published (Python {', '.join(pythons[release])}) and not in "
            "releases.in"
            for release in sorted(pythons, key=numbers)
        ]
    return found


def reviewed(text: str) -> set[tuple[str, str, str]]:
    """Returns (peer, newer release, "path:name") of each line of reviewed.txt."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {(peer, release, place) for peer, release, place, *_ in lines}


def unreviewed(
    known: dict[str, list[str]],
    of_review: set[tuple[str, str, str]],
    differ: Callable[[str, str, str], Iterable[str]],
) -> list[str]:
    """Returns a sentence for each change without a review, and each review without a change."""
    found = {
        (peer, newer, place)
        for peer, releases in known.items()
        if peer in changes.WATCHED
        for older, newer in itertools.pairwise(releases)
        for place in differ(peer, older, newer)
    }
    new = [
        f"{peer} {release} changed {place}: what does the dialect answer? Then add it to reviewed.txt"
        for peer, release, place in sorted(found - of_review)
    ]
    gone = [
        f"reviewed.txt has {peer} {release} {place}, which did not change"
        for peer, release, place in sorted(of_review - found)
    ]
    return new + gone


def between(peer: str, older: str, newer: str) -> list[str]:
    return changes.changes(peer, FOLDERS / f"{peer}-{older}", FOLDERS / f"{peer}-{newer}")


def main(what: str) -> int:
    known = listed((HERE / "releases.in").read_text())
    if what == "newest":
        problems = unlisted(known, published)
    else:
        problems = unreviewed(known, reviewed((HERE / "reviewed.txt").read_text()), between)
    for problem in problems:
        print(f"watch: {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
