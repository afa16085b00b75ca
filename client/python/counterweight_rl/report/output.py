"""The report as a picture and as a page."""

from __future__ import annotations

import base64
import datetime
import html
import io
import math
from collections.abc import Iterator, Sequence

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from counterweight_rl.report.series import GAUGES, SUMMARIES, Curve, Gauge, Run, Span

_COLUMNS = 3
# Fewer points than these are drawn as points too.
_FEW = 40
# No panel shows less time.
_LEAST_SECONDS = 10.0
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}"
    "img{max-width:100%;background:#fff}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.25em .8em;border-bottom:1px solid #8884;text-align:right}"
    "td{font-variant-numeric:tabular-nums}"
    "td:first-child,th:first-child{text-align:left}"
)


def _called(run: Run) -> str:
    return run.name or "(without a label)"


def _moment(time: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time, datetime.timezone.utc)


def _summary(curve: Curve) -> Iterator[float]:
    return (curve.summary.get(word, math.nan) for word in SUMMARIES)


def _number(value: float, *, is_share: bool = False) -> str:
    return f"{100 * value:.2f} %" if is_share else f"{value:.4g}"


def picture(runs: Sequence[Run]) -> bytes:
    """A PNG with the curves of all runs, a panel for each gauge that one of them has."""
    shown = [gauge for gauge in GAUGES if any(gauge.metric in run.curves for run in runs)]
    lines = max(1, -(-len(shown) // _COLUMNS))
    figure = Figure(figsize=(4.4 * _COLUMNS, 2.9 * lines + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    for index, gauge in enumerate(shown):
        _draw(figure.add_subplot(lines, _COLUMNS, index + 1), gauge, runs)
    if shown:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90)
    return out.getvalue()


def _draw(axes: Axes, gauge: Gauge, runs: Sequence[Run]) -> None:
    factor = 100.0 if gauge.is_share else 1.0
    for index, run in enumerate(runs):
        curve = run.curves.get(gauge.metric)
        times = [_moment(time) for time in curve.times] if curve else []
        values = [factor * value for value in curve.values] if curve else []
        # matplotlib hides labels that begin with an underscore.
        name = _called(run)
        label = "\N{ZERO WIDTH SPACE}" + name if name.startswith("_") else name
        style = {"color": f"C{index % 10}", "linewidth": 1.4, "label": label}
        # A line of one point is not seen.
        marker = "." if len(times) < _FEW else ""
        axes.plot(times, values, marker=marker, **style)  # type: ignore[arg-type]
    axes.set_title(gauge.title + (", %" if gauge.is_share else ""), loc="left", fontsize=10)
    # A log of 0 or less cannot be drawn.
    positive = all(
        min(run.curves[gauge.metric].values) > 0 for run in runs if gauge.metric in run.curves
    )
    if gauge.is_log and positive:
        axes.set_yscale("log")
    curves = [run.curves[gauge.metric] for run in runs if gauge.metric in run.curves]
    start = min(curve.times[0] for curve in curves)
    end = max(curve.times[-1] for curve in curves)
    spare = max(0.0, _LEAST_SECONDS - (end - start)) / 2
    axes.set_xlim(_moment(start - spare), _moment(end + spare))  # type: ignore[arg-type]
    locator = dates.AutoDateLocator(maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)


def page(runs: Sequence[Run], span: Span, image: bytes) -> str:
    """One file of HTML with the picture in it."""
    title = f"Drift of {len(runs)} run{'' if len(runs) == 1 else 's'}"
    times = " to ".join(f"{_moment(t):%Y-%m-%d %H:%M:%S}" for t in (span.start, span.end))
    encoded = base64.b64encode(image).decode()
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1><p>{times} UTC</p>",
            f'<img alt="Curves of the runs" src="data:image/png;base64,{encoded}">',
            *_tables(runs),
            "</body></html>\n",
        ]
    )


def _tables(runs: Sequence[Run]) -> Iterator[str]:
    yield "<h2>Counted</h2>"
    counts = ("batches", "tokens", "sequences", "non_finite_tokens")
    yield _table(
        ["run", "batches", "tokens", "sequences", "non-finite tokens"],
        [[_called(run), *(f"{run.counts.get(name, 0):,.0f}" for name in counts)] for run in runs],
    )
    for gauge in GAUGES:
        rows = [
            [_called(run), *(_number(v, is_share=gauge.is_share) for v in _summary(curve))]
            for run in runs
            if (curve := run.curves.get(gauge.metric))
        ]
        if rows:
            yield f"<h2>{html.escape(gauge.title)}</h2>"
            yield _table(["run", *SUMMARIES], rows)
    dropped = [
        [_called(run), rule, *(_number(share, is_share=True) for share in shares)]
        for run in runs
        for rule, shares in sorted(run.dropped.items())
    ]
    if dropped:
        yield "<h2>Dropped by rule</h2>"
        yield _table(["run", "rule", "tokens", "sequences"], dropped)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + line("th", head) + "".join(line("td", row) for row in rows) + "</table>"
