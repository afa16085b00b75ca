"""Runs the tests of systems that run from git, at the commits that were read, and finds newer code.

    checkouts.py RESULTS    # a folder; after .ci/setup peers and a build of the server

A clone is made in ``.venv-peers/checkouts/PEER`` where none is, with that commit alone. Code that
differs in the newest commit of its origin must be in reviewed_commits.txt.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

import changes
import watch
from watched import WATCHED

HERE = pathlib.Path(__file__).parent
FOLDER = HERE.parents[1] / ".venv-peers/checkouts"
COMMITS = {
    "areal": ("areal-project/AReaL", "cbff54d645d2cd8ee1f1c358a82f3f473588433d"),
    "miles": ("radixark/miles", "31f1ca961a94cb860cec3b2dea34ec332bfa8f76"),
    "nemo-rl": ("NVIDIA-NeMo/RL", "7ea279abfbeb698b092856d0dab61e7cf39bc909"),
    "prime-rl": ("PrimeIntellect-ai/prime-rl", "559b44772e471d1538537b8805cc77f3824a5e64"),
    "roll": ("alibaba/ROLL", "8eb27cc2dc34c4d1310b169d9b86d339004d811a"),
    "slime": ("THUDM/slime", "624b824a898ab0ec1fcb4d373004c7f3852bf515"),
}

# Peers with tests of these functions.
SUITES = ("areal", "miles", "nemo-rl", "prime-rl", "slime")


def git(folder: pathlib.Path, *words: str) -> str:
    """Runs git in a folder, and returns its output.

    Raises:
        RuntimeError: git fails, as without a network.
    """
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(words)} in {folder}: {done.stderr.strip()}")
    return done.stdout


def clone(folder: pathlib.Path, url: str, commit: str) -> None:
    """Makes a folder a clone with the commit checked out; a clone keeps its origin.

    Raises:
        RuntimeError: See ``git``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
        git(folder, "remote", "add", "origin", url)
    if (folder / ".git/HEAD").read_text().strip() == commit:
        return
    git(folder, "fetch", "-q", "--depth", "1", "origin", commit)
    git(folder, "checkout", "-q", "--detach", "--force", commit)


def changed(peer: str, folder: pathlib.Path) -> list[tuple[str, str]]:
    """Returns place and digest of watched code that differs in the origin's newest commit.

    Raises:
        RuntimeError: See ``git``.
        LookupError: Watched code is in neither.
    """
    git(folder, "fetch", "-q", "--depth", "1", "origin", "HEAD")
    with tempfile.TemporaryDirectory() as made:
        newest = pathlib.Path(made)
        for path in WATCHED[peer]:
            if not git(folder, "ls-tree", "FETCH_HEAD", "--", path):
                continue
            (newest / path).parent.mkdir(parents=True, exist_ok=True)
            (newest / path).write_text(git(folder, "show", f"FETCH_HEAD:{path}"))
        return [
            (place, changes.digest(newest, place))
            for place in changes.changes(peer, folder, newest)
        ]


def unreviewed(peer: str, folder: pathlib.Path, reviewed: set[tuple[str, str, str]]) -> list[str]:
    """Returns a sentence for each such change that is not in the review, and for no answer."""
    try:
        found = changed(peer, folder)
    except (RuntimeError, LookupError) as error:
        return [f"{peer}: {error}"]
    return [
        f"{peer} changed {place} ({code}): what does the dialect answer? Then add the line "
        f'"{peer} {code} {place} REMARK" to reviewed_commits.txt'
        for place, code in found
        if (peer, code, place) not in reviewed
    ]


def run(peer: str, folder: pathlib.Path, results: pathlib.Path) -> bool:
    """Returns whether our tests pass, and the peer's own with our functions.

    The table reads the outcomes of ours in ``results``.
    """
    path = results / f"{peer}-checkout.json"
    commit = COMMITS[peer][1][:8]
    path.write_text(f'{{"peer": "{peer}", "release": "{commit}", "outcomes": []}}')
    command = [HERE / "run_checkout", peer, folder]
    environment = {**os.environ, "COUNTERWEIGHT_PEER_RESULTS": str(path)}
    commands = [command, *([[HERE / "run_suite", peer, folder]] if peer in SUITES else [])]
    codes = [subprocess.run(one, env=environment).returncode for one in commands]
    return not any(codes)


def main(results: pathlib.Path) -> int:
    reviewed = watch.reviewed((HERE / "reviewed_commits.txt").read_text())
    problems, failed = [], False
    for peer, (repository, commit) in COMMITS.items():
        folder = FOLDER / peer
        try:
            clone(folder, f"https://github.com/{repository}", commit)
        except RuntimeError as error:
            problems.append(f"{peer}: {error}")
            continue
        problems += unreviewed(peer, folder, reviewed)
        failed |= not run(peer, folder, results)
    for problem in problems:
        print(f"watch: {problem}")
    return int(failed or bool(problems))


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
