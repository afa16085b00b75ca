"""Reads the runs' series from Prometheus."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterweight_rl.transport.target import may_stay_here

_TIMEOUT_SECONDS = 60.0
_POINTS = 400
# Four scrapes of the usual interval.
_LEAST_WINDOW_SECONDS = 60.0
_DRIFT = "counterweight_drift_"


class ReportError(Exception):
    """A sentence for the user."""


@dataclass(frozen=True)
class Gauge:
    """A metric that the report draws.

    Attributes:
        metric: Its name in Prometheus: a gauge of the last batch of each of a run's servers.
        title: With its unit.
        mean: Its mean over batches of any size on any number of servers: PromQL of counters,
            without the prefix that all have. Empty: the mean of the gauge over time and servers.
        is_share: Shown in percent.
        is_log: On a logarithmic scale.
    """

    metric: str
    title: str
    mean: str = ""
    is_share: bool = False
    is_log: bool = False


_TOKENS = "(drift_tokens_total > 0)"
_WEIGHTED = "(drift_weighted_tokens_total > 0)"

GAUGES = (
    Gauge(
        _DRIFT + "k3_nats",
        "KL divergence, k3 (nats per token)",
        f"drift_k3_sum_nats_total / {_TOKENS}",
        is_log=True,
    ),
    Gauge(
        _DRIFT + "kl_nats",
        "KL divergence, k1 (nats per token)",
        "(drift_log_ratio_negative_nats_total - drift_log_ratio_positive_nats_total) / " + _TOKENS,
    ),
    Gauge(
        _DRIFT + "chi2_token",
        "chi2 by token",
        f"drift_ratio_squared_sum_total / {_TOKENS} - 1",
    ),
    Gauge(
        _DRIFT + "effective_sample_size_ratio",
        "Effective sample size",
        "drift_weight_sum_total ^ 2 "
        f"/ (clamp_min(drift_weight_squared_sum_total, 1e-99) * {_WEIGHTED})",
        is_share=True,
    ),
    Gauge(
        _DRIFT + "weight_outside_ratio",
        "Weights out of their bounds",
        f"drift_weight_outside_tokens_total / {_WEIGHTED}",
        is_share=True,
    ),
    Gauge(
        _DRIFT + "kept_token_ratio",
        "Tokens kept",
        f"drift_kept_tokens_total / {_TOKENS}",
        is_share=True,
    ),
    Gauge("counterweight_loss", "Policy loss"),
    Gauge(
        "counterweight_loss_clip_ratio",
        "Clipped tokens",
        "loss_clipped_tokens_total / (loss_tokens_total > 0)",
        is_share=True,
    ),
    Gauge("counterweight_loss_gradient_norm", "Gradient norm", is_log=True),
)


def _mean(gauge: Gauge, growth: str) -> str:
    """PromQL of the mean by run; ``growth`` is that of one counter, whose place is ``{}``."""
    return re.sub(
        r"\b(?:drift|loss)_\w+",
        lambda name: f"sum by (run) ({growth.replace('{}', 'counterweight_' + name[0])})",
        gauge.mean,
    )


# The columns of the tables: of single batches, the mean over all.
SUMMARIES = ("least", "mean", "largest")


@dataclass(frozen=True)
class Span:
    """A time span.

    Attributes:
        start: Unix time in seconds.
        end: The same.
    """

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start

    @property
    def window(self) -> str:
        """Its length as PromQL has it."""
        return f"{max(1, math.ceil(self.seconds))}s"


@dataclass(frozen=True)
class Curve:
    """One gauge of one run.

    Attributes:
        times: Unix times in seconds.
        values: Parallel to ``times``, all finite.
        summary: By the words of SUMMARIES. Each point of the curve is a mean over a time, and
            these have seen the batches in it.
    """

    times: Sequence[float]
    values: Sequence[float]
    summary: Mapping[str, float]


@dataclass
class Run:
    """The data of a run in the report.

    Attributes:
        name: The label; empty for requests without it.
        counts: Batches, tokens, sequences and non-finite tokens, as the servers counted them.
        curves: By metric; none that has no value in the span.
        dropped: By rule, the shares of the run's tokens and sequences.
    """

    name: str
    counts: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    dropped: dict[str, tuple[float, float]] = field(default_factory=dict)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would send the headers to another host too."""

    def redirect_request(self, *_: Any) -> None:
        """Follows none, which makes the redirect an HTTPError."""


class _Proxies(urllib.request.ProxyHandler):
    """The proxies of the environment, for other machines only."""

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> Any:
        """Passes by the proxy for what is on this machine, also after a redirect."""
        if may_stay_here(urllib.parse.urlsplit(req.full_url).hostname or ""):
            return None
        return super().proxy_open(req, proxy, type)


def _split(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ReportError("the address of Prometheus has a password, which belongs in --header")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # of the port, or of brackets
        pass
    raise ReportError(f"{url!r} is not an address of Prometheus, such as http://localhost:9090")


class Prometheus:
    """The HTTP API of a Prometheus server, or of what speaks like one."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """``headers`` go with each request.

        They may be credentials, so neither a redirect nor, without TLS, a proxy gets them.

        Raises:
            ReportError: ``url`` is not one of http or https.
        """
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        parts = _split(self._url)
        handlers: list[urllib.request.BaseHandler] = []
        if headers:
            handlers.append(_NoRedirect())
        if headers and parts.scheme == "http":
            handlers.append(urllib.request.ProxyHandler({}))
        else:
            handlers.append(_Proxies())
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, path: str, **parameters: object) -> list[Any]:
        """The result of a query.

        Raises:
            ReportError: It cannot be reached, or refuses.
        """
        query = urllib.parse.urlencode(parameters)
        try:
            request = urllib.request.Request(
                f"{self._url}/api/v1/{path}?{query}", headers=self._headers
            )
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as error:
            raise ReportError(f"Prometheus at {self._url} answers {error.code}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReportError(f"found no Prometheus at {self._url}: {error}") from None


def read_runs(prometheus: Prometheus, span: Span, names: Sequence[str]) -> list[Run]:
    """The runs with these names, or all that had series in the span, by name.

    Raises:
        ReportError: There is no such run.
    """

    def totals(counter: str, by: str) -> list[Any]:
        # The largest value: an increase would leave out the first batch, with which series begin.
        expression = f"sum by ({by}) (max_over_time({_DRIFT}{counter}[{span.window}]))"
        return prometheus.ask("query", query=expression, time=span.end)

    runs: dict[str, Run] = {}
    for counter in ("batches", "tokens", "sequences", "non_finite_tokens"):
        for one in totals(f"{counter}_total", "run"):
            run = runs.setdefault(one["metric"].get("run", ""), Run(one["metric"].get("run", "")))
            run.counts[counter] = float(one["value"][1])
    if not runs:
        raise ReportError("Prometheus knows no run in this time; is the server scraped?")
    if missing := [name for name in names if name not in runs]:
        known = ", ".join(repr(name) for name in sorted(runs))
        raise ReportError(f"Prometheus knows no run {missing[0]!r} in this time, but {known}")

    sums = {
        kind: {
            (one["metric"].get("run", ""), one["metric"]["rule"]): float(one["value"][1])
            for one in totals(f"dropped_{kind}_total", "run, rule")
        }
        for kind in ("tokens", "sequences")
    }
    for (name, rule), tokens in sums["tokens"].items():
        counts = runs[name].counts
        runs[name].dropped[rule] = (
            tokens / max(counts["tokens"], 1),
            sums["sequences"].get((name, rule), 0.0) / max(counts["sequences"], 1),
        )
    for gauge in GAUGES:
        _read_curves(prometheus, span, gauge, runs)
    return [runs[name] for name in sorted(names or runs)]


def _summaries(gauge: Gauge, window: str) -> dict[str, str]:
    """PromQL by the words of SUMMARIES."""
    over = f"{gauge.metric}[{window}]"
    # An increase would leave out the first batch, with which series begin.
    last = f"max_over_time({{}}[{window}])"
    growth = f"({last} - {{}} offset {window}) or {last}"
    return {
        "least": f"min by (run) (min_over_time({over}))",
        "mean": _mean(gauge, growth) or f"avg by (run) (avg_over_time({over}))",
        "largest": f"max by (run) (max_over_time({over}))",
    }


def _curve(gauge: Gauge, step: float) -> str:
    """PromQL of the mean at a time."""
    shown = f"avg by (run) ({gauge.metric})"
    if not gauge.mean:
        return shown
    window = f"{math.ceil(max(2 * step, _LEAST_WINDOW_SECONDS))}s"
    # A run's first batch has no rate, and may be its only one.
    has_rate = f"sum by (run) (rate({_DRIFT}tokens_total[1h])) > 0"
    return f"{_mean(gauge, f'rate({{}}[{window}])')} or ({shown} unless on (run) {has_rate})"


def _read_curves(prometheus: Prometheus, span: Span, gauge: Gauge, runs: dict[str, Run]) -> None:
    summaries: dict[str, dict[str, float]] = {name: {} for name in runs}
    for word, query in _summaries(gauge, span.window).items():
        for one in prometheus.ask("query", query=query, time=span.end):
            summaries.get(one["metric"].get("run", ""), {})[word] = float(one["value"][1])
    step = max(span.seconds / _POINTS, 0.001)
    for one in prometheus.ask(
        "query_range", query=_curve(gauge, step), start=span.start, end=span.end, step=step
    ):
        run = runs.get(one["metric"].get("run", ""))
        points = [(time, float(value)) for time, value in one["values"]]
        points = [(time, value) for time, value in points if math.isfinite(value)]
        if run is not None and points:
            times, values = zip(*points, strict=True)
            run.curves[gauge.metric] = Curve(times, values, summaries[run.name])
