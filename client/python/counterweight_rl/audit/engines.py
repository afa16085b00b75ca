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
    """The parts of units in their order, by Ray Data on a cluster that sees the files.

    A block has one unit, which is computed again if its worker ends. Without a cluster it starts
    one of this machine, and ends it.

    Raises:
        ModuleNotFoundError: There is no Ray, or not what Ray Data needs.
    """
    import ray
    import ray.data

    is_own = not ray.is_initialized()
    if is_own:
        ray.init(log_to_driver=False, include_dashboard=False)

    def audited(row: dict[str, Any]) -> dict[str, bytes]:
        return {"part": steps.unit(row["path"], row["group"], spec)}

    context = ray.data.DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    try:
        items = [{"path": each.path, "group": each.group} for each in units]
        data = ray.data.from_items(items, override_num_blocks=len(items))
        for row in data.map(audited).iter_rows():
            yield row["part"]
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before
        if is_own:
            ray.shutdown()
