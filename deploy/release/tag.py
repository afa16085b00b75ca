"""The release that a commit's tag names, or one sentence why there is none."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess

TAG = re.compile(r"v(\d+\.\d+\.\d+)")
# Files that state the version, and how.
VERSIONS = {
    "CMakeLists.txt": r"project\(counterweight VERSION (\S+)",
    "client/python/counterweight_rl/_version.py": r'__version__ = "(.*)"',
    "client/go/version.go": r'Version = "(.*)"',
    "deploy/helm/counterweight/Chart.yaml": r"(?m)^version: (.*)$",
}


class Refusal(Exception):
    """A sentence for the person who asked for a release."""


@dataclasses.dataclass(frozen=True)
class Release:
    """Version, commit and time that a tag names."""

    version: str
    commit: str
    epoch: int  # seconds, of the commit

    @property
    def tag(self) -> str:
        """Returns the name of the tag."""
        return f"v{self.version}"

    @property
    def go_tag(self) -> str:
        """Returns the tag by which Go finds the module of the folder client/go."""
        return f"client/go/v{self.version}"


def _git(root: pathlib.Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(f"git {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def find(root: pathlib.Path) -> Release:
    """Returns the release of a clean checkout of a tag; raises Refusal otherwise."""
    changed = [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]
    if changed:
        shown = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        raise Refusal(f"the working tree differs from its commit ({shown}); commit or stash that")
    names = _git(root, "tag", "--points-at", "HEAD").split()
    found = [match[1] for name in names if (match := TAG.fullmatch(name))]
    if not found:
        raise Refusal(
            "no tag such as v0.1.0 names this commit; check one out, or make one: git tag -a v0.1.0"
        )
    if len(found) > 1:
        raise Refusal(f"several tags name this commit: {', '.join(f'v{one}' for one in found)}")
    (version,) = found
    for name, pattern in VERSIONS.items():
        stated = re.search(pattern, (root / name).read_text())
        if stated is None or stated[1] != version:
            other = stated[1] if stated else "no version"
            raise Refusal(f"the tag is v{version}, but {name} has {other}")
    commit, epoch = _git(root, "log", "-1", "--format=%H %ct").split()
    return Release(version, commit, int(epoch))
