"""The watch of other systems' releases sees a new release and a changed formula, and nothing else."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest

PEERS = pathlib.Path(__file__).parents[1] / "peers"
sys.path.append(str(PEERS))

import changes  # noqa: E402
import checkouts  # noqa: E402
import table  # noqa: E402
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


def commit(folder: pathlib.Path, text: str) -> str:
    (folder / "peer").mkdir(parents=True, exist_ok=True)
    (folder / "peer/loss.py").write_text(text)
    if not (folder / ".git").exists():
        checkouts.git(folder, "init", "-q", "-b", "main")
    checkouts.git(folder, "add", "peer")
    name = ("-c", "user.name=peer", "-c", "user.email=peer@example.org")
    checkouts.git(folder, *name, "commit", "-q", "-m", "loss")
    return checkouts.git(folder, "rev-parse", "HEAD").strip()


def test_newer_code_of_a_clone_has_a_review(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A clone stays at the commit that was read; each later change has its own review."""
    monkeypatch.setitem(changes.WATCHED, "peer", {"peer/loss.py": ("Config", "loss")})
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    first = commit(origin, LOSS)
    checkouts.git(origin, "config", "uploadpack.allowReachableSHA1InWant", "true")
    for _ in range(2):
        checkouts.clone(clone, origin.as_uri(), first)
    assert checkouts.unreviewed("peer", clone, set()) == []
    for after in ("sum()", "max()"):
        commit(origin, LOSS.replace("mean()", after).replace("A comment", "Another"))
        checkouts.clone(clone, origin.as_uri(), first)
        assert (clone / "peer/loss.py").read_text() == LOSS
        ((place, code),) = checkouts.changed("peer", clone)
        assert place == "peer/loss.py:loss"
        (sentence,) = checkouts.unreviewed("peer", clone, {("peer", "00000000", place)})
        assert f"peer changed peer/loss.py:loss ({code})" in sentence
        assert checkouts.unreviewed("peer", clone, {("peer", code, place)}) == []


def test_an_origin_that_does_not_answer_is_no_silence(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match="fetch"):
        checkouts.clone(tmp_path / "clone", (tmp_path / "absent").as_uri(), "0" * 40)
    (sentence,) = checkouts.unreviewed("slime", tmp_path / "clone", set())
    assert sentence.startswith("slime: git fetch")


def test_each_peer_from_git_has_watched_code_and_tests() -> None:
    for peer, (_, sha) in checkouts.COMMITS.items():
        assert changes.WATCHED[peer]
        assert list(PEERS.glob(f"test_{peer.replace('-', '_')}_*.py"))
        assert len(sha) == 40
    for peer, code, place in watch.reviewed((PEERS / "reviewed_commits.txt").read_text()):
        assert peer in checkouts.COMMITS
        assert len(code) == 8
        assert ":" in place


def test_a_module_without_an_outcome_is_no_success(tmp_path: pathlib.Path) -> None:
    """A skipped test is an outcome, which the table counts."""
    none, skipped = tmp_path / "none.json", tmp_path / "skipped.json"
    outcome = {"function": "loss", "outcome": "skipped", "why": None}
    for path, outcomes in ((none, []), (skipped, [outcome])):
        path.write_text(json.dumps({"peer": "p", "release": "1", "outcomes": outcomes}))
    assert table.main([none]) == 1
    assert table.main([skipped]) == 0
    assert table.rows([skipped]) == [("p", "1", "loss", "1", "0", "0", "0", "1", "0")]
