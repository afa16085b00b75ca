"""The scripts of deploy/slurm, with the variables that Slurm sets."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import counterweight_rl as cw
import pytest
from batches import padded_batch
from server_process import DEADLINE_SECONDS, REPOSITORY, binary

pytestmark = pytest.mark.server_only

SCRIPTS = REPOSITORY / "deploy/slurm"


class Job:
    """A job's number, folders and scripts."""

    def __init__(self, root: pathlib.Path) -> None:
        self.folder = root / "counterweight-7"
        self.state = root / "state/counterweight-7"
        self.state.parent.mkdir()
        self.environment = {
            **os.environ,
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_UID": str(os.getuid()),
            "TMPDIR": str(root),
            "COUNTERWEIGHT_STATE": str(self.state.parent),
            "COUNTERWEIGHT_SERVER": str(binary()),
        }

    def run(self, script: str, **changed: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [SCRIPTS / script],
            env={**self.environment, **changed},
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0
        return done

    def pid(self) -> int:
        return int(self.state.read_text().split()[0])

    def correct(self) -> None:
        line = self.run("task_prolog").stdout.strip()
        target = line.removeprefix("export COUNTERWEIGHT_TARGET=")
        with cw.Client(target, transport="shared_memory") as client:
            client.correct(method="token_tis", **padded_batch())


def runs(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.split()[2] != "Z"


@pytest.fixture
def job() -> Iterator[Job]:
    # Paths of sockets are short, and pytest's folders are deep.
    with tempfile.TemporaryDirectory(prefix="cw") as folder:
        made = Job(pathlib.Path(folder))
        yield made
        made.run("epilog")


def test_a_job_has_a_server_until_its_end(job: Job) -> None:
    assert job.run("prolog").stderr == ""
    job.correct()
    pid = job.pid()
    job.run("epilog")
    assert not runs(pid)
    assert not job.folder.exists()
    assert not job.state.exists()
    assert job.run("task_prolog").stdout == ""


def test_a_requeued_job_replaces_the_server_of_its_first_run(job: Job) -> None:
    job.run("prolog")
    first = job.pid()
    job.run("prolog")
    assert not runs(first)
    job.correct()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_epilog_ends_what_preemption_left(job: Job, number: signal.Signals) -> None:
    job.run("prolog")
    pid = job.pid()
    os.kill(pid, number)
    job.run("epilog")
    assert not runs(pid)
    assert not job.folder.exists()


# For BASH_ENV: SIGKILL takes effect late, as on a busy node.
SLOW_DEATH = """
kill() {
  [[ $1 == -KILL ]] || { builtin kill "$@"; return; }
  { command sleep 1; builtin kill "$@"; } >/dev/null 2>&1 &
}
"""
# The process, which ignores SIGTERM, is stopped only after it.
STOPS_LATER = "sleep() { builtin kill -STOP $pid; command sleep $1; }\n"


def left_behind(job: Job) -> subprocess.Popen[bytes]:
    """Starts the process that the job's state names; it ignores SIGTERM."""
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code = f"import sys; {ignore}; print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"\n"
    started = pathlib.Path(f"/proc/{other.pid}/stat").read_text().split()[21]
    job.state.write_text(f"{other.pid} {started}\n")
    job.folder.mkdir()
    return other


@pytest.mark.parametrize("moment", ["before", "after_sigterm"])
def test_the_epilog_waits_for_what_it_kills(job: Job, moment: str, tmp_path: pathlib.Path) -> None:
    functions = tmp_path / "functions"
    functions.write_text(SLOW_DEATH + (STOPS_LATER if moment == "after_sigterm" else ""))
    with left_behind(job) as other:
        if moment == "before":
            os.kill(other.pid, signal.SIGSTOP)
        done = job.run("epilog", BASH_ENV=str(functions))
        assert not runs(other.pid)
        assert done.stderr == ""
    assert not job.folder.exists()
    assert not job.state.exists()


def test_a_server_that_no_epilog_could_find_is_ended(job: Job) -> None:
    job.state.mkdir()
    done = job.run("prolog")
    assert f"{job.state} cannot be written" in done.stderr
    job.state.rmdir()
    line = f"{job.folder}/server.sock"
    assert not any(line in command for command in commands())


def commands() -> Iterator[str]:
    """Yields the command lines of all processes."""
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_text(errors="replace")


def test_the_epilog_leaves_another_process_of_the_same_number(job: Job) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        job.state.write_text(f"{other.pid} 1\n")
        job.run("epilog")
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"COUNTERWEIGHT_SERVER": "/none"}, "/none cannot be executed"),
        ({"SLURM_JOB_ID": "../x"}, "SLURM_JOB_ID is '../x', not a number"),
        ({"COUNTERWEIGHT_THREADS": "many"}, "the server"),
    ],
)
def test_a_problem_is_named_and_drains_no_node(
    job: Job, changed: dict[str, str], problem: str
) -> None:
    done = job.run("prolog", **changed)
    assert problem in done.stderr
    assert done.stderr.startswith("counterweight prolog: ")


def test_the_owner_of_the_folder_gets_nothing_written_elsewhere(
    job: Job, tmp_path: pathlib.Path
) -> None:
    """Root writes the log into a folder of the job's user, who could put a link there."""
    victim = tmp_path / "victim"
    victim.write_text("kept\n")
    programs = {
        "id": "echo 0",
        "chown": f'ln -sf {victim} "$2/log"',
        "setpriv": 'shift 4; exec "$@"',
    }
    for name, command in programs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{command}\n")
        program.chmod(0o755)
    other = {"SLURM_JOB_UID": "65534", "SLURM_JOB_GID": "65534"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = job.run("prolog", PATH=path, COUNTERWEIGHT_THREADS="many", **other)
    assert victim.read_text() == "kept\n"
    assert "COUNTERWEIGHT_THREADS=many" in done.stderr
