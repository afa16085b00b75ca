"""Draws runs from Prometheus: python -m counterweight_rl.report --run my-run --output my-run.

Needs matplotlib: pip install "counterweight-rl[report]".
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import time

from counterweight_rl.report.series import Prometheus, ReportError, Span, read_runs

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span such as 90s, 30m, 6h or 2d")
    return float(found[1]) * _UNITS[found[2]]


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError("a header is written NAME: VALUE")
    return name.strip(), value.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m counterweight_rl.report",
        description="Writes a picture and a page of runs, from the drift metrics in Prometheus.",
    )
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        default=os.environ.get("PROMETHEUS_URL", "http://localhost:9090"),
        help="the server to ask (default: PROMETHEUS_URL, or %(default)s)",
    )
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        help="a run's label; repeat it for several (default: all)",
    )
    parser.add_argument(
        "--since",
        type=_duration,
        default="6h",
        help="how far back, such as 30m or 2d (default: %(default)s)",
    )
    parser.add_argument(
        "--until", type=float, metavar="UNIX_TIME", help="the end of the span (default: now)"
    )
    parser.add_argument(
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="goes with each request, such as 'Authorization: Bearer ...'",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("counterweight-report"),
        help="the files' name without .png and .html (default: %(default)s)",
    )
    return parser


def main() -> None:
    """Runs the command line; an error is one sentence, and exit code 1."""
    arguments = _parser().parse_args()
    try:
        from counterweight_rl.report.output import page, picture
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        sys.exit('report: needs matplotlib: pip install "counterweight-rl[report]"')
    end = time.time() if arguments.until is None else arguments.until
    span = Span(end - arguments.since, end)
    try:
        prometheus = Prometheus(arguments.prometheus, dict(arguments.header))
        runs = read_runs(prometheus, span, list(dict.fromkeys(arguments.run)))
        image = picture(runs)
        for suffix, data in ((".png", image), (".html", page(runs, span, image).encode())):
            path = arguments.output.with_name(arguments.output.name + suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"report: wrote {path}")
    except (ReportError, OSError) as error:
        sys.exit(f"report: {error}")


if __name__ == "__main__":
    main()
