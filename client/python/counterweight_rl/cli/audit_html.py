"""The audit of a folder as one HTML file, without anything from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from counterweight_rl._version import __version__
from counterweight_rl.audit.report import Drift, Report
from counterweight_rl.cli import audit, display

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em;
       color: #1c2530; background: #fff }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2em .8em .2em 0; text-align: right; vertical-align: top }
th { border-bottom: 1px solid #9aa5b1; font-weight: 600 }
th:first-child, td:first-child { text-align: left }
.error { color: #b3261e } .warning { color: #8a5a00 }
svg { display: block; margin: .5em 0 } text { font: 11px system-ui, sans-serif; fill: #4a5562 }
code { font-size: .95em }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 170, 62, 24
_COLORS = {"k1": "#c25e00", "k3": "#0b62a8"}


def page(place: str, found: Report) -> str:
    """Returns the file's text."""
    parts = [f"<h1>Audit of <code>{escape(place)}</code></h1>", *_head(found)]
    for key, rows in found.drift.items():
        title = audit.TITLES[key]
        parts += [f"<h2>Drift by {title}</h2>", _chart(key, rows)]
        heads = (title, "tokens", "sequences", "KL (k1)", "KL (k3)", "chi2")
        parts.append(_table(heads, (_cells(key, row) for row in rows)))
        if key == "cause" and found.causes is not None:
            parts.append(f"<p>{audit.causes(found.causes)}</p>")
    if found.effects:
        parts.append("<h2>What methods would have done, to all rows</h2>")
        plain = [head.replace("\n", " ") for head in audit.EFFECT_HEADS]
        parts.append(_table(plain, map(audit.effect, found.effects)))
    if found.faults:
        parts.append("<h2>Findings of the doctor, by file</h2><ul>")
        for each in found.faults:
            where = f"<code>{escape(each.file)}</code>, row group {each.group}"
            parts.append(
                f'<li><b class="{escape(each.severity)}">{escape(each.name)}</b>: {where} '
                f"({each.units} in all). {escape(each.sentence)}</li>"
            )
        parts.append("</ul>")
    if found.problems:
        parts.append("<h2>Left out</h2><ul>")
        for problem in found.problems:
            counted = f"{problem.units} row groups, {problem.rows} rows"
            parts.append(
                f"<li><code>{escape(problem.file)}</code>: {escape(problem.sentence)} "
                f"({counted})</li>"
            )
        parts.append("</ul>")
    parts.append(f"<p>Digest {found.digest}; counterweight {__version__}.</p>")
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">\n'
        f"<title>Audit of {escape(place)}</title>\n<style>{_STYLE}</style>\n{body}\n</html>\n"
    )


def _head(found: Report) -> list[str]:
    if found.whole is None:
        return ["<p>No token was audited.</p>"]
    whole = found.whole
    return [
        f"<p>{found.files:,} files, {found.units:,} row groups, {whole.sequences:,} sequences, "
        f"{whole.tokens:,} tokens.</p>",
        f"<p>KL in nats per token: k1 {display.number(whole.kl)}, k3 {display.number(whole.k3)}; "
        f"chi2 {display.number(whole.chi2)}.</p>",
    ]


def _cells(key: str, row: Drift) -> list[str]:
    sequences = "" if row.sequences is None else f"{row.sequences:,}"
    numbers = [display.number(value) for value in (row.kl, row.k3, row.chi2)]
    return [audit.label(key, row.value), f"{row.tokens:,}", sequences, *numbers]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    lines = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"


def _chart(key: str, rows: Sequence[Drift]) -> str:
    """k1 and k3 of each value, from 0; values are in even distances."""
    drawn = [row for row in rows if math.isfinite(row.k3) and math.isfinite(row.kl)]
    if len(drawn) < 2:
        return ""
    numbers = [number for row in drawn for number in (row.k3, row.kl)]
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    span = (high - low) or 1.0
    right, bottom = _WIDTH - 12, _HEIGHT - _BOTTOM
    step = (right - _LEFT) / (len(drawn) - 1)

    def y(value: float) -> float:
        return bottom - (value - low) / span * (bottom - 12)

    made = [
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="KL by {escape(audit.TITLES[key])}">'
    ]
    for value in (low, (low + high) / 2, high):
        line = f'x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"'
        made.append(f'<line {line} stroke="#dde3e9"/>')
        label = display.number(value)
        made.append(
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for name, color in _COLORS.items():
        heights = [y(row.kl if name == "k1" else row.k3) for row in drawn]
        points = [(_LEFT + i * step, height) for i, height in enumerate(heights)]
        path = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
        made.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        if len(points) <= 60:
            made += [
                f'<circle cx="{x:.1f}" cy="{h:.1f}" r="2.5" fill="{color}"/>' for x, h in points
            ]
    every = max(1, math.ceil(len(drawn) / 10))
    for i, row in enumerate(drawn):
        if i % every == 0:
            made.append(
                f'<text x="{_LEFT + i * step:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">'
                f"{escape(row.value)}</text>"
            )
    words = (f'<tspan fill="{color}">{name}</tspan> ' for name, color in _COLORS.items())
    made.append(
        f'<text x="{right}" y="10" text-anchor="end">nats per token: {"".join(words)}</text>'
    )
    return "\n".join([*made, "</svg>"])
