"""The two functions that an engine calls: Spark, Dask, Ray, an array of Slurm jobs."""

from __future__ import annotations

from counterweight_rl.audit import work
from counterweight_rl.audit.part import from_bytes
from counterweight_rl.audit.spec import Spec


def unit(path: str, group: int, spec: Spec) -> bytes:
    """Audits a row group, in memory for one.

    Args:
        path: The file, as ``units`` names it.
        group: Its row group.
        spec: What to compute.

    Returns:
        A part of an audit, some KB for each value of a key. A file that cannot be read makes a part
        that names the reason.

    Raises:
        ValueError: A method of the spec does not exist, or needs what logs do not have.
    """
    return work.audit(path, group, spec).to_bytes()


def merge(one: bytes, other: bytes, spec: Spec | None = None) -> bytes:
    """Adds two parts; any order and grouping of the same units gives the same report.

    Args:
        one: A part.
        other: A part of other units.
        spec: Has the engine that adds; None: this process.

    Raises:
        ValueError: They are of different specs, or have a unit in common.
    """
    part = from_bytes(one)
    part.add(from_bytes(other), work.client(spec))
    return part.to_bytes()
