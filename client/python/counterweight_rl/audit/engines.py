"""Computes the units: in this process, in several, or on Ray."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

from counterweight_rl.audit import steps
from counterweight_rl.audit.sources import Unit
from counterweight_rl.audit.spec import Spec

# Units that wait for a worker, each; more would only hold the results of fast ones in memory.
_AHEAD = 4


def in_processes(units: Sequence[Unit], spec: Spec, processes: int) -> Iterator[bytes]:
    """The parts of units in their order, by several processes or this one.

    Raises:
        OSError: A process ended, such as for lack of memory.
    """
    if processes == 1 or len(units) < 2:
        yield from (steps.unit(each.path, each.group, spec) for each in units)
        return
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting: list[futures.Future[bytes]] = []
        try:
            for each in units:
                waiting.append(pool.submit(steps.unit, each.path, each.group, spec))
                if len(waiting) > _AHEAD * processes:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        except futures.process.BrokenProcessPool as error:
            raise OSError(f"a process of the audit ended: {error}") from error
        finally:
            for future in waiting:
                future.cancel()


def on_ray(units: Sequence[Unit], spec: Spec) -> Iterator[bytes]:
    """The parts of units in their order, by the tasks of a Ray cluster that sees the files.

    A task is repeated if its worker ends.

    Raises:
        ModuleNotFoundError: There is no Ray.
    """
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    task = ray.remote(steps.unit)
    waiting: list[Any] = []
    most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for each in units:
        waiting.append(task.remote(each.path, each.group, spec))
        if len(waiting) > most:
            yield ray.get(waiting.pop(0))
    while waiting:
        yield ray.get(waiting.pop(0))
