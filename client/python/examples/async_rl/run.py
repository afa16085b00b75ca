"""Asynchronous GRPO with and without corrections: one command makes curves, table and picture.

    python client/python/examples/async_rl/run.py           # all, see README.md
    python client/python/examples/async_rl/run.py --quick   # the same parts in seconds, no result

Needs torch; matplotlib draws the picture.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable
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


def killing(server: processes.Server, settings: Settings) -> Callable[[dict[str, Any]], None]:
    """Returns what half-way kills the server and at three quarters brings it back."""

    def hear(record: dict[str, Any]) -> None:
        if record.get("step") == settings.steps // 2:
            server.kill()
        elif record.get("step") == settings.steps * 3 // 4:
            server.start()

    return hear


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

    names = list(methods(settings))[: 2 if arguments.quick else None]
    corrected = names[1:]
    runs = len(names) * seeds + 2 * len(corrected)
    progress = Progress(runs * settings.steps + settings.start_updates // 10)
    start = models.to_arrays(starting_weights(settings, folder, progress))
    results: dict[str, Any] = {
        "settings": vars(settings),
        "curves": {name: {} for name in names},
        "same": {},
    }

    def train(label: str, method: str, seed: int, target: str, heard: Any = None) -> Any:
        def hear(record: dict[str, Any]) -> None:
            if heard is not None:
                heard(record)
            if record.get("step"):
                progress.advance(label)

        began = time.monotonic()
        records = processes.run(settings, start, method, seed, target, hear)
        rewards = report.rewards(records)[1]
        progress.line(
            f"{label:<36} solved {rewards[0]:.2f} -> {rewards[-1]:.2f}  "
            f"{time.monotonic() - began:.0f} s"
        )
        return records

    def save() -> None:
        (folder / "results.json").write_text(json.dumps(results))

    for seed in range(seeds):
        for name in names:
            records = train(f"{name}, seed {seed}, in process", name, seed, "local:")
            results["curves"][name][seed] = records
            save()
    for name in corrected:
        undisturbed = results["curves"][name][_SEED_OF_SERVERS]
        for kill in (True,) if arguments.quick else (False, True):
            label = f"{name}, seed {_SEED_OF_SERVERS}, server" + (" killed" if kill else "")
            with processes.server() as server:
                hear = killing(server, settings) if kill else None
                records = train(label, name, _SEED_OF_SERVERS, server.target, hear)
            results["same"][label] = {
                "equal": report.bits(records) == report.bits(undisturbed),
                "backends": records[-1]["backends"],
            }
            save()
    print(report.table(results))
    picture = folder / "async_rl.png"
    if report.draw(results, picture):
        print(f"picture: {picture}")
    same = results["same"].values()
    return 0 if all(one["equal"] for one in same) else 1


if __name__ == "__main__":
    sys.exit(main())
