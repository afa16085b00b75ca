"""Draws the data of every panel of the dashboards, in the places that Grafana gives them.

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
from dashboard_files import FOLDER, NAMES, Question, questions, read_dashboard
from history import SCRAPE_SECONDS, START, serve_history, train
from matplotlib import colors, dates, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from prometheus_process import Prometheus
from server_process import REPOSITORY, ServerProcess

WINDOW = "2m"
# Size of a cell of Grafana's grid, which is 24 wide.
COLUMN_INCHES, LINE_INCHES = 0.52, 0.3
MARGINS = {"left": 0.42, "right": 0.14, "top": 0.36, "bottom": 0.3}  # inches
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
                axes.plot(times, factor * values[finite], lw=1.1, label=label)
    scale = custom["scaleDistribution"]
    if scale["type"] == "log":
        axes.set_yscale("log")
    elif scale["type"] == "symlog":
        axes.set_yscale("symlog", linthresh=scale["linearThreshold"])
    elif "min" in panel["fieldConfig"]["defaults"]:
        axes.set_ylim(bottom=0)
    if unit:
        axes.text(0, 1.01, unit, transform=axes.transAxes, fontsize=6, va="bottom", ha="left")
    axes.legend(fontsize=5, frameon=False, ncols=2, loc="best")


def draw_heat_map(axes: Axes, answers: Sequence[Series]) -> None:
    """Buckets as Grafana reads them: each is what its own counts beyond the one below."""
    series = sorted(answers[0], key=lambda one: float(one["metric"]["le"]))
    edges = [one["metric"]["le"] for one in series]
    times, _ = points(series[0])
    cumulative = np.array([points(one)[1] for one in series])
    counts = np.diff(cumulative, axis=0, prepend=0)
    axes.pcolormesh(
        times,
        range(len(edges)),
        np.ma.masked_less_equal(counts, 0),
        norm=colors.PowerNorm(0.5),
        cmap="viridis",
        shading="nearest",
    )
    axes.set_yticks(range(0, len(edges), 2), edges[::2], fontsize=5)


def draw_number(axes: Axes, asked: Sequence[Question], answers: Sequence[Series]) -> None:
    panel = asked[0].panel
    unit = panel["fieldConfig"]["defaults"]["unit"]
    texts = []
    for question, series in zip(asked, answers, strict=True):
        for one in series:
            value = float(one["values"][-1][1])
            name = "" if question.legend == "__auto" else question.name(one["metric"])
            if unit == "none":
                texts.append(name)
            elif unit == "dateTimeFromNow":
                when = datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
                texts.append(f"{when:%Y-%m-%d %H:%M}")
            elif unit == "percentunit":
                texts.append(f"{100 * value:.1f} %")
            else:
                texts.append(f"{value:.3g} {name}".strip())
    axes.set_axis_off()
    size = 13 if len("".join(texts)) < 30 else 9
    axes.text(0.5, 0.4, "   ".join(texts), ha="center", va="center", fontsize=size)


def place(figure: Figure, position: Mapping[str, int], lines: int) -> Axes:
    """Returns the axes inside a panel's place."""
    width, height = figure.get_size_inches()
    left = position["x"] * COLUMN_INCHES + MARGINS["left"]
    right = (position["x"] + position["w"]) * COLUMN_INCHES - MARGINS["right"]
    top = (lines - position["y"]) * LINE_INCHES - MARGINS["top"]
    bottom = (lines - position["y"] - position["h"]) * LINE_INCHES + MARGINS["bottom"]
    return figure.add_axes(
        (left / width, bottom / height, (right - left) / width, (top - bottom) / height)
    )


def save(figure: Figure, path: pathlib.Path) -> None:
    """Saves it with few colours, so that the file is small."""
    raw = io.BytesIO()
    figure.savefig(raw, dpi=88)
    with Image.open(raw) as picture:
        picture.convert("RGB").quantize(48).save(path, optimize=True)


def draw(name: str, prometheus: Prometheus, end: int, path: pathlib.Path) -> None:
    dashboard = read_dashboard(name)
    lines = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
    figure = pyplot.figure(figsize=(24 * COLUMN_INCHES, lines * LINE_INCHES))
    span = {"start": str(START + 60), "end": str(end), "step": f"{SCRAPE_SECONDS}s"}
    by_panel: dict[int, list[Question]] = {}
    for question in questions(name):
        by_panel.setdefault(question.panel["id"], []).append(question)
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            height = 1 - (panel["gridPos"]["y"] + 0.9) / lines
            figure.text(0.005, height, panel["title"], fontsize=9, weight="bold")
            continue
        axes = place(figure, panel["gridPos"], lines)
        asked = by_panel[panel["id"]]
        answers = [prometheus.curves(q.expression(WINDOW), span) for q in asked]
        if not all(answers):
            sys.exit(f"dashboard_pictures: {asked[0]} has no data")
        axes.set_title(panel["title"], fontsize=7, loc="center")
        axes.tick_params(which="both", labelsize=5, length=2)
        axes.grid(alpha=0.25, lw=0.4)
        if panel["type"] == "stat":
            draw_number(axes, asked, answers)
            continue
        if panel["type"] == "heatmap":
            draw_heat_map(axes, answers)
        else:
            draw_curves(axes, asked, answers)
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
