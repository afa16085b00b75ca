"""Audits the files of a folder, and keeps what was audited before."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from counterweight_rl.audit import sources, work
from counterweight_rl.audit.part import Part, Problem, from_bytes
from counterweight_rl.audit.sources import Unit
from counterweight_rl.audit.spec import Spec

Engine = Callable[[Sequence[Unit], Spec], Iterator[bytes]]
CHANGED = "changed while it was read"


def audit(
    units: Sequence[Unit], spec: Spec, engine: Engine, progress: Callable[[int], object]
) -> Part:
    """Audits units; leaves out every file that changed meanwhile.

    Args:
        units: Those of a file one after the other.
        spec: What to compute.
        engine: Returns their parts in their order.
        progress: Called with the bytes that are done.

    Raises:
        ValueError: See ``work.check_methods``.
    """
    work.check_methods(spec)
    total = Part(spec.hash)
    done = 0
    pairs = zip(units, engine(units, spec), strict=True)
    try:
        for path, of_file in itertools.groupby(pairs, key=lambda pair: pair[0].path):
            part = Part(spec.hash)
            for unit, data in of_file:
                part.add(from_bytes(data), work.client(spec))
                done += unit.num_bytes
                progress(done)
            total.add(_unless_changed(path, part, spec), work.client(spec))
    except KeyboardInterrupt:
        left = sum(unit.num_bytes for unit in units) - done
        total.add_problem(Problem("", f"interrupted: {left} bytes were not read", 0, 0))
    return total


def _unless_changed(path: str, part: Part, spec: Spec) -> Part:
    there = _identity(path)
    if (path, CHANGED) not in part.problems and part.files.get(path, there) == there:
        return part
    left_out = Part(spec.hash, units=part.units)
    left_out.add_problem(Problem(path, CHANGED, len(part.units[path]), 0))
    return left_out


def _identity(path: str) -> str:
    try:
        return sources.identity(pathlib.Path(path))
    except OSError:
        return ""


def new_files(paths: Iterable[pathlib.Path], state: Part | None) -> list[pathlib.Path]:
    """The files that a state does not have.

    Raises:
        ValueError: A file was audited, and has changed since.
    """
    found = []
    for path in paths:
        if state is None or str(path) not in state.files:
            found.append(path)
        elif state.files[str(path)] != sources.identity(path):
            raise ValueError(f"{path} has changed since --state has it; begin with a new state")
    return found


def read_state(path: pathlib.Path, spec: Spec) -> Part | None:
    """Returns the sums of earlier audits; None: there was none.

    Raises:
        ValueError: The file is no state, or of an audit with another spec.
        OSError: It cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    state = from_bytes(data)
    if state.spec != spec.hash:
        raise ValueError("is the state of an audit with other --methods, --by or --columns")
    return state


def write_state(path: pathlib.Path, part: Part) -> None:
    """Writes what was audited, at once or not at all; files that were left out are tried again.

    Raises:
        OSError: It cannot be written.
    """
    # A problem of some rows stays; one of a whole file without sums does not.
    done = Part(
        part.spec,
        part.totals,
        part.faults,
        {key: each for key, each in part.problems.items() if each.file in part.files},
        {file: groups for file, groups in part.units.items() if file in part.files},
        part.files,
    )
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_bytes(done.to_bytes())
    os.replace(temporary, path)
