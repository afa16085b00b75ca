"""A release has a clean tree, one tag, one version and a section of the changelog; else one sentence names what is missing."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import archive
import notes
import pytest
import tag

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPOCH = 1_700_000_000
WHO = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")


def git(folder: pathlib.Path, *words: str) -> None:
    environment = {"GIT_AUTHOR_DATE": f"{EPOCH} +0000", "GIT_COMMITTER_DATE": f"{EPOCH} +0000"}
    subprocess.run(
        ["git", *WHO, *words], cwd=folder, check=True, capture_output=True, env=environment
    )


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A repository with the files that state the version, and one commit."""
    folder = tmp_path / "checkout"
    for name in tag.VERSIONS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def version() -> str:
    text = (ROOT / "client/python/counterweight_rl/_version.py").read_text()
    return text.partition('__version__ = "')[2].partition('"')[0]


def test_a_tag_of_this_commit_is_found(checkout: pathlib.Path) -> None:
    git(checkout, "tag", f"v{version()}")
    git(checkout, "tag", f"client/go/v{version()}")
    found = tag.find(checkout)
    assert (found.version, found.epoch, found.tag) == (version(), EPOCH, f"v{version()}")
    assert found.go_tag == f"client/go/v{version()}"


def test_every_file_has_the_version(checkout: pathlib.Path) -> None:
    for name in tag.VERSIONS:
        path = checkout / name
        text = path.read_text()
        path.write_text(text.replace(version(), "9.9.9"))
        git(checkout, "commit", "-qam", name)
        git(checkout, "tag", "-f", f"v{version()}")
        with pytest.raises(tag.Refusal, match=f"the tag is v{version()}, but {name} has 9.9.9"):
            tag.find(checkout)
        path.write_text(text)
        git(checkout, "commit", "-qam", "back")


def test_a_changed_file_is_refused(checkout: pathlib.Path) -> None:
    git(checkout, "tag", f"v{version()}")
    (checkout / "new").write_text("")
    with pytest.raises(tag.Refusal, match=r"the working tree differs from its commit \(new\)"):
        tag.find(checkout)


def test_a_commit_without_a_tag_is_refused(checkout: pathlib.Path) -> None:
    git(checkout, "tag", "v1.0.0-rc1")
    with pytest.raises(tag.Refusal, match=r"no tag such as v0\.1\.0 names this commit"):
        tag.find(checkout)


def test_several_tags_are_refused(checkout: pathlib.Path) -> None:
    git(checkout, "tag", "v1.0.0")
    git(checkout, "tag", "v1.0.1")
    with pytest.raises(tag.Refusal, match=r"several tags name this commit: v1\.0\.0, v1\.0\.1"):
        tag.find(checkout)


CHANGELOG = """# Changelog

## Unreleased

- New.

## 0.1.10 - 2026-12-24

- Ten.

## 0.1.1

- One,
  in two lines.
"""


def test_notes_are_the_section_of_the_version() -> None:
    assert notes.section(CHANGELOG, "0.1.1") == "- One,\n  in two lines."
    assert notes.section(CHANGELOG, "0.1.10") == "- Ten."
    for other in ("0.1.2", "0.1"):
        with pytest.raises(tag.Refusal, match=f"no text below a heading '## {other}'"):
            notes.section(CHANGELOG, other)


@pytest.mark.parametrize(
    ("cuda", "word"), [(True, "with CUDA, for aarch64: no"), (False, "made with CUDA=0")]
)
def test_notes_name_what_is_missing(cuda: bool, word: str) -> None:
    release = tag.Release("0.1.1", "c0ffee", EPOCH)
    page = notes.write(CHANGELOG, release, notes.missing(cuda=cuda))
    assert page.startswith("# Counterweight 0.1.1\n\n- One,")
    assert "client/go@v0.1.1" in page
    assert "`client/go/v0.1.1`" in page
    for each in (word, "counterweight-rl-cu13", "signatures"):
        assert each in page.partition("## Not in this release")[2]


def test_the_charts_archive_has_the_same_bytes_twice(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / archive.CHART, copy / archive.CHART)
    git(copy, "init", "-q")
    git(copy, "add", ".")
    assert archive.chart(copy) == archive.chart(ROOT)
