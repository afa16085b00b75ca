"""Asynchronous GRPO with and without corrections: one command makes curves, table and picture.

    python client/python/examples/async_rl/run.py           # all, see README.md
    python client/python/examples/async_rl/run.py --quick   # the same parts in seconds, no result

Needs torch; matplotlib draws the picture.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import model as models
import processes
import report
import torch
from sampler import prepare_process
from settings import QUICK, Settings, methods
from start import pretrain

# The other ways through, which must change no number, run with this seed.
_SEED_OF_SERVERS = 0
_WIDTH = 24


class Progress:
    """A bar on a terminal; elsewhere a line for each run."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()

    def advance(self, label: str, steps: int = 1) -> None:
        self._done += steps
        if sys.stderr.isatty():
            filled = _WIDTH * self._done // self._total
            left = (time.monotonic() - self._began) * (self._total / self._done - 1)
            bar = "#" * filled + "." * (_WIDTH - filled)
            print(f"\r[{bar}] {left:4.0f} s left  {label:<44}", end="", file=sys.stderr, flush=True)

    def line(self, text: str) -> None:
        clear = "\r" + " " * 90 + "\r" if sys.stderr.isatty() else ""
        print(clear + text, file=sys.stderr, flush=True)


def starting_weights(
    settings: Settings, folder: pathlib.Path, progress: Progress
) -> dict[str, Any]:
    """Imitates the demonstrations, or reads the weights that an earlier call left."""
    path = folder / f"start-{settings.start_updates}.pt"
    if path.exists():
        progress.advance("start", settings.start_updates // 10)
        return torch.load(path)
    shown = [0]

    def advance(update: int) -> None:
        if update % 10 == 0:
            shown[0] += 1
            progress.advance(f"imitation, update {update}")

    weights = pretrain(settings.start_updates, advance).state_dict()
    torch.save(weights, path)
    return weights


@contextlib.contextmanager
def interrupted_by(server: processes.Server, settings: Settings, kill: bool) -> Iterator[Any]:
    """What to do at each step: half-way the server is killed, and at three quarters it is back."""

    def hear(record: dict[str, Any]) -> None:
        if kill and record.get("step") == settings.steps // 2:
            server.kill()
        if kill and record.get("step") == settings.steps * 3 // 4:
            server.start()

    yield hear


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="few steps of a start that knows little"
    )
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results")
    parser.add_argument("--seeds", type=int, help="seeds of each method")
    arguments = parser.parse_args()
    settings = QUICK if arguments.quick else Settings()
    seeds = arguments.seeds or (1 if arguments.quick else 3)
    folder = arguments.out or pathlib.Path("build/async_rl" + ("_quick" if arguments.quick else ""))
    folder.mkdir(parents=True, exist_ok=True)
    prepare_process()

    names = list(methods(settings))
    corrected = names[1:]
    runs = len(names) * seeds + 2 * len(corrected)
    progress = Progress(runs * settings.steps + settings.start_updates // 10)
    start = models.to_arrays(starting_weights(settings, folder, progress))
    curves: dict[str, dict[int, Any]] = {name: {} for name in names}

    def train(label: str, method: str, seed: int, target: str, heard: Any = None) -> Any:
        def hear(record: dict[str, Any]) -> None:
            if heard is not None:
                heard(record)
            if record.get("step"):
                progress.advance(label)

        began = time.monotonic()
        records = processes.run(settings, start, method, seed, target, hear)
        rewards = [record["reward"] for record in records if "reward" in record]
        progress.line(
            f"{label:<44} reward {rewards[0]:.2f} -> {rewards[-1]:.2f}  "
            f"{time.monotonic() - began:.0f} s"
        )
        return records

    for seed in range(seeds):
        for name in names:
            records = train(f"{name}, seed {seed}, in process", name, seed, "local:")
            curves[name][seed] = records
    same = {}
    for name in corrected:
        undisturbed = curves[name][_SEED_OF_SERVERS]
        for kill in (False, True):
            label = f"{name}, seed {_SEED_OF_SERVERS}, server" + (" killed" if kill else "")
            with processes.server() as server, interrupted_by(server, settings, kill) as hear:
                records = train(label, name, _SEED_OF_SERVERS, server.target, hear)
            same[label] = {
                "equal": report.bits(records) == report.bits(undisturbed),
                "backends": records[-1]["backends"],
            }
    results = {"settings": vars(settings), "curves": curves, "same": same}
    (folder / "results.json").write_text(json.dumps(results))
    print(report.table(results))
    picture = folder / "async_rl.png"
    if report.draw(results, picture):
        print(f"picture: {picture}")
    return 0 if all(one["equal"] for one in same.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
