"""Table and picture of the results."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

# The mean of these evaluations counts as the end of a run; one alone is noisy.
_LAST = 3
_COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#b7950b")

Records = list[dict[str, Any]]


def rewards(records: Records) -> tuple[list[int], list[float]]:
    """Returns the steps of the evaluations, and what they found."""
    found = [record for record in records if "reward" in record]
    return [record["step"] for record in found], [record["reward"] for record in found]


def bits(records: Records) -> tuple[Any, ...]:
    """Returns every loss, in full, and the hash of the final weights."""
    losses = [loss.hex() for record in records for loss in record.get("losses", [])]
    return (*losses, records[-1]["weights"])


def _of_seeds(numbers: list[float]) -> str:
    each = ", ".join(f"{number:.2f}" for number in numbers)
    return f"{statistics.mean(numbers):.2f} ({each})"


def table(results: dict[str, Any]) -> str:
    """Returns Markdown: what each method reached, and whether the ways through it agree."""
    lines = [
        f"| correction | solved at the start | best | last {_LAST} evaluations (each seed) | "
        "k3 at the end, nats | dropped |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in results["curves"].items():
        found = [rewards(records)[1] for records in runs.values()]
        steps = [[r for r in records if "losses" in r] for records in runs.values()]
        tail = [r["k3"] for each in steps for r in each[-len(each) // 4 :]]
        dropped = statistics.mean(1 - r["kept"] for each in steps for r in each)
        lines.append(
            f"| {name} | {statistics.mean(each[0] for each in found):.2f} | "
            f"{statistics.mean(max(each) for each in found):.2f} | "
            f"{_of_seeds([statistics.mean(each[-_LAST:]) for each in found])} | "
            f"{statistics.mean(tail):.3f} | {dropped:.0%} |"
        )
    lines += [
        "",
        "| the same run through a server | losses and weights | computed by |",
        "|---|---|---|",
    ]
    for label, found in results["same"].items():
        equal = "equal, byte for byte" if found["equal"] else "DIFFERENT"
        by = ", ".join(f"{backend}: {calls} calls" for backend, calls in found["backends"].items())
        lines.append(f"| {label} | {equal} | {by} |")
    return "\n".join(lines)


def draw(results: dict[str, Any], path: pathlib.Path) -> bool:
    """Draws rewards and drift by step; False if there is no matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install matplotlib")
        return False
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    reward, drift = figure.subplots(1, 2)
    for colour, (name, runs) in zip(_COLOURS, results["curves"].items(), strict=False):
        each = [rewards(records) for records in runs.values()]
        _band(reward, each[0][0], [found[1] for found in each], colour, name)
        steps = [[r for r in records if "losses" in r] for records in runs.values()]
        _band(
            drift,
            [r["step"] for r in steps[0]],
            [[r["k3"] for r in run] for run in steps],
            colour,
            name,
        )
    settings = results["settings"]
    seeds = len(next(iter(results["curves"].values())))
    reward.set_title("solved, current weights", fontsize=10)
    reward.set_ylim(0, 1)
    reward.legend(frameon=False, fontsize=9)
    drift.set_title("drift old / rollout: k3, nats", fontsize=10)
    drift.set_yscale("log")
    for axes in (reward, drift):
        axes.set_xlabel("training step")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"GRPO, int4 sampler {settings['lag']} steps behind; mean and range of {seeds} seeds",
        fontsize=11,
    )
    figure.savefig(path, dpi=110)
    return True


def _band(axes: Any, steps: list[int], runs: list[list[float]], colour: str, name: str) -> None:
    columns = list(zip(*runs, strict=True))
    axes.plot(steps, [statistics.mean(each) for each in columns], color=colour, label=name)
    axes.fill_between(
        steps,
        [min(each) for each in columns],
        [max(each) for each in columns],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
