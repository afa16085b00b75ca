"""Release notes: a version's section of CHANGELOG.md, and what the release lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tag import Refusal, Release


def missing(*, cuda: bool) -> list[str]:
    """Returns what a release lacks, made with CUDA or without: its notes promise nothing else."""
    backend = "the wheel with CUDA, counterweight-rl-cu13, and the image with CUDA"
    return [
        f"{backend}, for aarch64: no" if cuda else f"{backend}: no; it was made with CUDA=0",
        "signatures and provenance: no, until the steps that deploy/release/publish prints have run",
    ]


def section(changelog: str, version: str) -> str:
    """Returns the text below the heading of ``version``; raises Refusal if there is none."""
    found = re.search(rf"(?ms)^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog)
    if found is None or not found[1].strip():
        raise Refusal(
            f"CHANGELOG.md has no text below a heading '## {version}'; give 'Unreleased' that name"
        )
    return found[1].strip()


def write(changelog: str, release: Release, lacks: Iterable[str]) -> str:
    """Returns the page of the release, which lacks what the lines say."""
    lines = "\n".join(f"- {line}" for line in lacks)
    return f"""# Counterweight {release.version}

{section(changelog, release.version)}

## Go

`go get github.com/counterweight/counterweight/client/go@{release.tag}` finds the tag `{release.go_tag}` of this commit.

## Not in this release

{lines}

Made from commit {release.commit}. `sha256sum -c SHA256SUMS` checks the files.
"""
