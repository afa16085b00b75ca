"""The watch of other systems' releases sees a new release and a changed formula, and nothing else."""

from __future__ import annotations

import pathlib
import sys

import pytest

PEERS = pathlib.Path(__file__).parents[1] / "peers"
sys.path.append(str(PEERS))

import changes  # noqa: E402
import watch  # noqa: E402

LOSS = '''
class Config:
    """Says what it is."""

    epsilon: float = field(default=0.2, metadata={"help": "The clip."})
    """A docstring of a field."""
    def __init__(self):
        """Checks."""
        self.epsilon = 0.2

def loss(ratio, advantages):
    # A comment.
    return -(ratio * advantages).mean()
'''


def changed(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, newer: str) -> list[str]:
    monkeypatch.setitem(changes.WATCHED, "peer", {"peer/loss.py": ("Config", "loss")})
    for name, text in (("old", LOSS), ("new", newer)):
        (folder / name / "peer").mkdir(parents=True)
        (folder / name / "peer/loss.py").write_text(text)
    return changes.changes("peer", folder / "old", folder / "new")


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("A comment", "Another", []),
        ("The clip", "Another", []),
        ("Says what", "Another", []),
        ("Checks", "Another", []),
        ("A docstring", "Another", []),
        ("epsilon: float", "epsilon: int", []),
        ("loss(ratio, advantages)", "loss(ratio: float, advantages) -> float", []),
        ("default=0.2", "default=0.3", ["Config.epsilon"]),
        ("self.epsilon = 0.2", "self.epsilon = 0.3", ["Config.__init__"]),
        ("mean()", "sum()", ["loss"]),
        ("advantages):", "advantages, beta=0):", ["loss"]),
        ("class Config:", "class Config:\n    beta: float = 0\n", ["Config.beta"]),
        ("class Config:", "class Config(Base):", ["Config"]),
        ("def loss", "@registered\ndef loss", ["loss"]),
        ("def loss", "def other(): pass\ndef loss", []),
        ("def loss", "def lost", ["loss"]),
    ],
)
def test_a_change_is_one_of_code(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    before: str,
    after: str,
    names: list[str],
) -> None:
    assert before in LOSS
    found = changed(monkeypatch, tmp_path, LOSS.replace(before, after))
    assert found == [f"peer/loss.py:{name}" for name in names]


def test_code_that_moved_away_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setitem(changes.WATCHED, "peer", {"peer/loss.py": ("gone",)})
    (tmp_path / "peer").mkdir()
    (tmp_path / "peer/loss.py").write_text(LOSS)
    with pytest.raises(LookupError, match="with gone"):
        changes.changes("peer", tmp_path, tmp_path)


def test_a_release_is_new_under_any_python() -> None:
    def index(name: str, python: str) -> list[str]:
        return ["0.3.0", "0.2.0", *(["0.10.0", "0.4.0"] if python >= "3.12" else [])]

    (first, second) = watch.unlisted({"skyrl": ["0.3.0"]}, index)
    assert "skyrl 0.4.0 is published (Python 3.12, 3.13, 3.14)" in first
    assert "skyrl 0.10.0" in second
    assert watch.unlisted({"skyrl": ["0.3.0", "0.4.0", "0.10.0"]}, index) == []
    (silent,) = watch.unlisted({"skyrl": ["0.3.0"]}, lambda *_: [])
    assert "skyrl has no release" in silent


def test_every_change_has_a_review_and_every_review_a_change() -> None:
    known = {"trl": ["1.9.0", "1.9.1", "1.10.0"]}

    def differ(peer: str, older: str, newer: str) -> list[str]:
        return ["loss.py:loss"] if newer == "1.9.1" else []

    assert watch.unreviewed(known, {("trl", "1.9.1", "loss.py:loss")}, differ) == []
    (new,) = watch.unreviewed(known, set(), differ)
    assert "trl 1.9.1 changed loss.py:loss" in new
    both = {("trl", "1.9.1", "loss.py:loss"), ("trl", "1.10.0", "loss.py:loss")}
    (gone,) = watch.unreviewed(known, both, differ)
    assert "trl 1.10.0 loss.py:loss, which did not change" in gone


def test_the_lists_name_the_same_releases() -> None:
    known = watch.listed((PEERS / "releases.in").read_text())
    locked = watch.listed((PEERS / "releases.lock").read_text().replace(" \\", ""))
    assert locked == known
    for peer, release, _ in watch.reviewed((PEERS / "reviewed.txt").read_text()):
        assert release in known[peer][1:]
