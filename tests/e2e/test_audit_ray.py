"""The audit on a Ray cluster of one node: the digest of one process, also when a worker is killed."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ray: Any = pytest.importorskip("ray", reason="needs Ray Data: pip install 'ray[data]'")
pytest.importorskip("pyarrow")
pytest.importorskip("pandas", reason="Ray Data needs it")

from command_line import counterweight  # noqa: E402
from counterweight_rl import audit  # noqa: E402
from counterweight_rl.audit import engines, folder, steps  # noqa: E402
from recorded_logs import make_rows, write  # noqa: E402

ROWS = make_rows(48, longest=120)
SPEC = audit.Spec(doctor=False)


@pytest.fixture
def start() -> Iterator[Callable[[int], None]]:
    def cluster(workers: int) -> None:
        paths = os.pathsep.join(os.environ.get("PYTHONPATH", "").split(os.pathsep))
        own = str(pathlib.Path(__file__).parent)
        ray.init(
            num_cpus=workers,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": f"{own}{os.pathsep}{paths}"}},
        )

    yield cluster
    ray.shutdown()


@pytest.fixture
def place(local_library: None, tmp_path: pathlib.Path) -> pathlib.Path:
    return write(tmp_path / "log", [ROWS[:30], ROWS[30:]], group=5)


def digest(place: pathlib.Path, engine: folder.Engine) -> str:
    made = folder.audit(audit.units(place), SPEC, engine, lambda done: None)
    found = audit.report(made.to_bytes(), SPEC)
    assert found.is_complete
    return found.digest


def alone(place: pathlib.Path) -> str:
    return digest(place, lambda units, spec: engines.in_processes(units, spec, 1))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_ray_has_the_digest_of_one_process(
    place: pathlib.Path, start: Callable[[int], None], workers: int
) -> None:
    start(workers)
    assert digest(place, engines.on_ray) == alone(place)


def test_the_command_prints_what_one_process_prints(place: pathlib.Path) -> None:
    printed = counterweight("audit", place, "--on=ray")
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == counterweight("audit", place).stdout
    assert not ray.is_initialized()


def killed_once(path: str, group: int, spec: audit.Spec) -> bytes:
    """Audits a unit; the first attempt at the third one kills its worker."""
    marker = pathlib.Path(path).with_name("killed")
    if group == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return steps.unit(path, group, spec)


def test_a_killed_worker_changes_nothing(
    place: pathlib.Path, start: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = alone(place)
    start(2)
    monkeypatch.setattr(engines, "steps", type("Steps", (), {"unit": staticmethod(killed_once)}))
    assert digest(place, engines.on_ray) == expected
    assert (place / "killed").exists()
