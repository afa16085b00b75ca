"""Draws the data of two panels of each dashboard at reading size.

PYTHONPATH=tests/e2e .venv/bin/python tests/demo/dashboard_pictures.py; `make pictures` does it.
"""

from __future__ import annotations

import datetime
import io
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from certificates import Authority
from dashboard_files import FOLDER, NAMES, Question, questions
from history import SCRAPE_SECONDS, START, serve_history, train
from matplotlib import dates, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from prometheus_process import Prometheus
from server_process import REPOSITORY, ServerProcess

WINDOW = "2m"
SIZE_INCHES = (10.5, 3.8)
# Titles of curves in each dashboard; tests look at every panel.
PANELS = {
    "drift": ("KL divergence, k3", "Tokens dropped, by rule"),
    "service": ("Requests, by method", "Mean time, by stage"),
}
UNITS = {
    "percentunit": (100.0, "%"),
    "bytes": (1 / 2**20, "MiB"),
    "Bps": (1 / 2**20, "MiB/s"),
    "s": (1000.0, "ms"),
    "reqps": (1.0, "1/s"),
    "cps": (1.0, "1/s"),
    "opm": (1.0, "1/min"),
}

Series = Sequence[Mapping[str, Any]]


def points(one: Mapping[str, Any]) -> tuple[list[datetime.datetime], np.ndarray]:
    pairs = [(time, float(value)) for time, value in one["values"]]
    times = [datetime.datetime.fromtimestamp(t, datetime.UTC) for t, _ in pairs]
    return times, np.array([value for _, value in pairs])


def draw_curves(axes: Axes, asked: Sequence[Question], answers: Sequence[Series]) -> None:
    panel = asked[0].panel
    factor, unit = UNITS.get(panel["fieldConfig"]["defaults"]["unit"], (1.0, ""))
    custom = panel["fieldConfig"]["defaults"]["custom"]
    stacked, base = custom.get("stacking"), None
    for question, series in zip(asked, answers, strict=True):
        for one in series:
            times, values = points(one)
            finite = np.isfinite(values)
            label = question.name(one["metric"]).strip() or "all"
            if stacked:
                values = factor * np.nan_to_num(values) + (0 if base is None else base)
                axes.fill_between(times, 0 if base is None else base, values, label=label, lw=0)
                base = values
            else:
                times = [time for time, keep in zip(times, finite, strict=True) if keep]
                axes.plot(times, factor * values[finite], lw=1.6, label=label)
    scale = custom["scaleDistribution"]
    if scale["type"] == "log":
        axes.set_yscale("log")
    elif scale["type"] == "symlog":
        axes.set_yscale("symlog", linthresh=scale["linearThreshold"])
    elif "min" in panel["fieldConfig"]["defaults"]:
        axes.set_ylim(bottom=0)
    if unit:
        axes.text(0, 1.01, unit, transform=axes.transAxes, fontsize=10, va="bottom", ha="left")
    axes.legend(fontsize=10, frameon=False, loc="best")


def save(figure: Figure, path: pathlib.Path) -> None:
    """Saves it with few colours, so that the file is small."""
    raw = io.BytesIO()
    figure.savefig(raw, dpi=100)
    with Image.open(raw) as picture:
        picture.convert("RGB").quantize(48).save(path, optimize=True)


def draw(name: str, prometheus: Prometheus, end: int, path: pathlib.Path) -> None:
    figure, places = pyplot.subplots(1, 2, figsize=SIZE_INCHES, layout="constrained")
    span = {"start": str(START + 60), "end": str(end), "step": f"{SCRAPE_SECONDS}s"}
    for axes, title in zip(places, PANELS[name], strict=True):
        asked = [question for question in questions(name) if question.panel["title"] == title]
        answers = [prometheus.curves(q.expression(WINDOW), span) for q in asked]
        if not answers or not all(answers):
            sys.exit(f"dashboard_pictures: {title!r} of {name}.json has no data")
        draw_curves(axes, asked, answers)
        axes.set_title(title, fontsize=12)
        axes.tick_params(which="both", labelsize=10)
        axes.grid(alpha=0.25, lw=0.6)
        axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
        axes.xaxis.set_major_locator(dates.AutoDateLocator(maxticks=6))
    save(figure, path)
    pyplot.close(figure)
    print(
        f"dashboard_pictures: wrote {path.relative_to(REPOSITORY)}, {path.stat().st_size // 1000} kB"
    )


def main() -> None:
    # Proxies must not intercept connections on this machine.
    os.environ["no_proxy"] = "127.0.0.1,localhost"
    pyplot.switch_backend("Agg")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        server = ServerProcess(
            f"--shared_memory_socket={folder}/memory",
            *Authority(folder, "authority").sign("server").flags(),
            "--metrics_tls=false",
            listen=f"unix:{folder}/server",
        )
        try:
            end = train(server, folder / "samples")
        finally:
            server.stop()
        with serve_history(folder, folder / "samples", end) as prometheus:
            for dashboard in NAMES:
                draw(dashboard, prometheus, end, FOLDER / f"{dashboard}.png")


if __name__ == "__main__":
    main()
