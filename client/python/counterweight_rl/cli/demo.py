"""Real rollouts inside the package, and three methods on them."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from counterweight_rl.cli import batch_file, display
from counterweight_rl.client import Client
from counterweight_rl.config import Method, Preset

_FOLDER = pathlib.Path(__file__).parent / "rollouts"


@dataclass(frozen=True)
class Step:
    """A training step of tests/demo/data; the package has its first sequences.

    Attributes:
        name: Stem of the file there and here.
        engine: Arithmetic of the rollout engine.
        behind: Policy versions between sampling and training.
    """

    name: str
    engine: str
    behind: int


STEPS = (
    Step("step_00", "bfloat16", 0),
    Step("step_02", "bfloat16", 2),
    Step("step_04", "bfloat16", 4),
    Step("step_08", "4-bit integers", 4),
)
# The name of a preset alone would mean its default interval, 0.999 to 1.001.
_METHODS: tuple[tuple[str, Method], ...] = (
    ("token_tis", "token_tis"),
    ("icepop", "icepop"),
    ("geo_rs\n0.95 to 1.05", Preset("geo_rs_token_tis", keep_lower=0.95, keep_upper=1.05)),
)


def run(client: Client, where: Console) -> None:
    """Corrects the steps and prints their drift, and what each method takes out."""
    drift, taken = [], []
    for step in STEPS:
        batch = batch_file.read(_FOLDER / f"{step.name}.npz")
        arrays: dict[str, Any] = {n: a for n, a in batch.arrays.items() if n in _INPUTS}
        results = [client.correct(method=method, **arrays) for _, method in _METHODS]
        metrics = results[0].metrics
        head = (step.engine, str(step.behind))
        shown = [display.number(metrics[name]) for name in ("kl", "k3", "chi2_token")]
        ess = display.share(metrics["effective_sample_size"])
        drift.append((*head, f"{metrics['tokens']:.0f}", *shown, ess))
        truncated = metrics["weight_clipped_high_fraction"]
        zero = results[1].metrics["weight_zero_fraction"]
        dropped = 1 - results[2].metrics["kept_token_fraction"]
        taken.append((*head, *map(display.share, (truncated, zero, dropped))))
    columns = ("engine", "versions\nbehind", "tokens", "KL (k1)", "KL (k3)", "chi2", "ESS")
    title = "Drift of the trainer's policy from the one that sampled (KL in nats per token)"
    display.print_table(where, title, display.table(columns, drift))
    where.print()
    title = "Tokens: weight truncated by token_tis, made 0 by icepop; dropped by geo_rs"
    names = (name for name, _ in _METHODS)
    display.print_table(where, title, display.table((*columns[:2], *names), taken))
    where.print(f"computed by {results[0].backend}, numerics version {results[0].numerics_version}")


_INPUTS = ("rollout_log_probs", "old_log_probs", "response_mask", "sequence_lengths")


def save(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Copies the batches into a folder, for ``counterweight correct``."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        path = folder / f"{step.name}.npz"
        shutil.copyfile(_FOLDER / path.name, path)
        yield path
