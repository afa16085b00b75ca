"""Release notes: a version's section of CHANGELOG.md, and what the release lacks."""

from __future__ import annotations

import re

from tag import Refusal, Release

# Printed by `make release` and written into the notes, so that a release promises nothing that it lacks.
MISSING = (
    "image and Debian packages for aarch64: no",
    "the wheel with CUDA, counterweight-rl-cu13, and the image with CUDA: no; `CUDA=1 make wheel` and `CUDA=1 make image "
    "ARGS=--variant=cuda` make them",
    "signatures and provenance: no, until the steps that deploy/release/publish prints have run",
)


def section(changelog: str, version: str) -> str:
    """Returns the text below the heading of ``version``; raises Refusal if there is none."""
    found = re.search(rf"(?ms)^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog)
    if found is None or not found[1].strip():
        raise Refusal(
            f"CHANGELOG.md has no text below a heading '## {version}'; give 'Unreleased' that name"
        )
    return found[1].strip()


def write(changelog: str, release: Release) -> str:
    """Returns the page of the release."""
    missing = "\n".join(f"- {line}" for line in MISSING)
    return f"""# Counterweight {release.version}

{section(changelog, release.version)}

## Go

`go get github.com/counterweight/counterweight/client/go@{release.tag}` finds the tag `{release.go_tag}` of this commit.

## Not in this release

{missing}

Made from commit {release.commit}. `sha256sum -c SHA256SUMS` checks the files.
"""
