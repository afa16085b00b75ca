"""Leaves the demo's server running, and a Prometheus that scrapes it, until Ctrl-C."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import signal
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence

from prometheus_process import Prometheus, find_tool
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess

RULES = REPOSITORY / "deploy/prometheus/rules.yml"
# Between two training steps: curves grow while one looks.
STEP_SECONDS = 1.0
GRAPH = "counterweight_drift_k3_nats"


def page_of(server: ServerProcess) -> str:
    return server.metrics_url.removesuffix("metrics")


def graph_of(prometheus: Prometheus) -> str:
    query = {"g0.expr": GRAPH, "g0.tab": "0", "g0.range_input": "5m"}
    # The root redirects to the graphs, which distributions and versions have at different paths.
    with urllib.request.urlopen(prometheus.url, timeout=DEADLINE_SECONDS) as page:
        return f"{page.url}?{urllib.parse.urlencode(query)}"


def keep(
    server: ServerProcess, steps: Sequence[Callable[[], None]], say: Callable[[str], None]
) -> None:
    """Goes through the steps again and again until SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with contextlib.ExitStack() as stack:
        program = find_tool("prometheus")
        if program is None:
            say("Prometheus is not installed; `make demo` installs it")
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            prometheus = Prometheus(
                program,
                pathlib.Path(folder),
                [urllib.parse.urlsplit(server.metrics_url).netloc],
                rules=[RULES],
                interval="1s",
                # Ctrl-C is for the demo, which then stops it.
                own_group=True,
            )
            stack.callback(prometheus.stop)
            # Until then its pages are errors.
            prometheus.wait_for("vector(1)")
            say(f"Prometheus shows {GRAPH} at {graph_of(prometheus)}")
        say(f"the page is {page_of(server)}")
        say("both go on, with a training step a second, until Ctrl-C")
        for step in itertools.cycle(steps):
            step()
            if stop.wait(STEP_SECONDS):
                return
