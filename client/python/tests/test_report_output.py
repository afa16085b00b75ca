"""The picture and the page of a report, of runs that are made up."""

from __future__ import annotations

import io
import math
import warnings

import numpy as np
import pytest

from counterweight_rl.report.series import GAUGES, Curve, Run, Span

pytest.importorskip("matplotlib")
from matplotlib.image import imread

from counterweight_rl.report.output import page, picture

SPAN = Span(1e9, 1e9 + 3600)
# matplotlib's first colours have much of the one and little of the other.
BLUE, ORANGE = (2, 0), (0, 2)


def run(name: str, *, points: int = 200, metrics: int = len(GAUGES)) -> Run:
    times = np.linspace(SPAN.start, SPAN.end, points)
    values = 0.5 + 0.4 * np.sin(times / 300)
    summary = {"least": 0.1, "mean": 0.5, "largest": 0.9}
    curve = Curve(times.tolist(), values.tolist(), summary)
    return Run(
        name,
        counts={"batches": 1234.0, "tokens": 5.0, "sequences": 2.0, "non_finite_tokens": 1.0},
        curves={gauge.metric: curve for gauge in GAUGES[:metrics]},
        dropped={"mean_k3": (0.25, 0.5)},
    )


def pixels(image: bytes, channels: tuple[int, int]) -> int:
    """Those that have more of the first channel than of the second, beyond what grey has."""
    shown = imread(io.BytesIO(image))
    return int((shown[..., channels[0]] - shown[..., channels[1]] > 0.2).sum())


def test_each_run_has_its_curves() -> None:
    one = picture([run("a")])
    assert pixels(one, BLUE) > 5000
    assert pixels(one, ORANGE) == 0
    other = run("b")
    for metric, curve in other.curves.items():
        other.curves[metric] = Curve(curve.times, [1 - v for v in curve.values], curve.summary)
    both = picture([run("a"), other])
    assert pixels(both, ORANGE) > 5000


@pytest.mark.parametrize("name", ["", "_hidden", "$x_{1}$", "a" * 64])
def test_any_label_and_any_length_can_be_drawn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for points in (1, 2, 50):
            assert pixels(picture([run(name, points=points, metrics=1)]), BLUE) > 20
        picture([Run(name)])


def test_a_gauge_that_is_0_has_no_logarithm() -> None:
    flat = run("a", metrics=1)
    curve = flat.curves[GAUGES[0].metric]
    assert GAUGES[0].is_log
    flat.curves[GAUGES[0].metric] = Curve(curve.times, [0.0] * len(curve.times), curve.summary)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pixels(picture([flat]), BLUE) > 100


def test_the_page_is_text_and_numbers() -> None:
    text = page([run("<script>alert(1)</script>")], SPAN, b"png")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<h1>Drift of 1 run</h1>" in text
    assert "2001-09-09 01:46:40 to 2001-09-09 02:46:40 UTC" in text
    assert "<td>1,234</td><td>5</td><td>2</td><td>1</td>" in text
    assert "<td>mean_k3</td><td>25.00 %</td><td>50.00 %</td>" in text
    assert "<td>0.1</td><td>0.5</td><td>0.9</td>" in text


def test_a_summary_that_prometheus_lacks_is_not_a_number() -> None:
    lacking = run("a", metrics=1)
    curve = lacking.curves[GAUGES[0].metric]
    lacking.curves[GAUGES[0].metric] = Curve(curve.times, curve.values, {"least": 1.0})
    assert math.isnan(curve.summary.get("never", math.nan))
    assert "<td>1</td><td>nan</td><td>nan</td>" in page([lacking], SPAN, b"")
