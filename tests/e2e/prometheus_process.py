"""A real Prometheus server as a child process, with Debian's programs, which .ci/setup unpacks."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from server_process import DEADLINE_SECONDS, REPOSITORY

# Pause between two polls of an API without notifications.
POLL_SECONDS = 0.05
# Interval of scrapes and rules. Tests wait for several.
INTERVAL = "100ms"


def find_tool(name: str) -> str | None:
    """Returns the path of a program of the package prometheus."""
    return shutil.which(name, path=f"{os.environ['PATH']}:{REPOSITORY}/.tools/prometheus")


class Prometheus:
    """Scrapes ``targets`` under the job "counterweight"; ``rules`` are files of rules."""

    def __init__(
        self,
        program: str,
        folder: pathlib.Path,
        targets: Sequence[str] = (),
        *,
        rules: Sequence[pathlib.Path] = (),
        interval: str = INTERVAL,
        flags: Sequence[str] = (),
        own_group: bool = False,
        scrape: Mapping[str, object] | None = None,
    ) -> None:
        """Starts it with its configuration and samples in ``folder``.

        ``scrape`` is what the job has beside its targets, such as ``tls_config``.
        With ``own_group`` a terminal's Ctrl-C does not reach it.
        """
        config = folder / "prometheus.yml"
        # JSON is YAML.
        config.write_text(
            json.dumps(
                {
                    "global": {
                        "scrape_interval": interval,
                        "scrape_timeout": interval,
                        "evaluation_interval": interval,
                    },
                    "rule_files": [str(rule.resolve()) for rule in rules],
                    "scrape_configs": [
                        {
                            **(scrape or {}),
                            "job_name": "counterweight",
                            "static_configs": [{"targets": list(targets)}],
                        }
                    ],
                }
            )
        )
        # Pages beside a program that is unpacked, not installed.
        pages = pathlib.Path(program).with_name("web")
        if pages.is_dir():
            flags = [f"--web.local-assets={pages}", *flags]
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                *flags,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=own_group,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            address = re.search(r'"?Listening on"? address=(\S+)', line)
            if address:
                self.url = f"http://{address[1]}"
                break
        else:
            raise RuntimeError("prometheus did not start")
        # Prometheus blocks if its log is not read.
        self._drain = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._drain.start()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._drain.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def ask(self, path: str, **parameters: str) -> Any:
        """Returns the API's data; None while it is not ready."""
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}",
                timeout=DEADLINE_SECONDS,
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error
            return None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the expression's current series, without non-numbers."""
        answer = self.ask("query", query=expression)
        series: list[dict[str, Any]] = answer["result"] if answer else []
        return [one for one in series if math.isfinite(float(one["value"][1]))]

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """Returns the expression's series as soon as one is a number."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        pause = threading.Event()
        while time.monotonic() < deadline:
            if result := self.query(expression):
                return result
            pause.wait(POLL_SECONDS)
        raise AssertionError(f"Prometheus never saw {expression}")

    def curves(self, expression: str, span: Mapping[str, str]) -> list[dict[str, Any]]:
        """Returns the expression's series over ``span``: start, end and step."""
        answer = self.ask("query_range", query=expression, **span)
        series: list[dict[str, Any]] = answer["result"]
        return series
