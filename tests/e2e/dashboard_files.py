"""The dashboards of deploy/grafana, as Grafana would read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from server_process import REPOSITORY

FOLDER = REPOSITORY / "deploy/grafana"
NAMES = ("drift", "service")


@dataclass(frozen=True)
class Question:
    """A query of a panel."""

    dashboard: str
    panel: Mapping[str, Any]
    letter: str
    template: str
    legend: str

    def expression(self, window: str) -> str:
        """Returns the query with everything selected, and rates over the window."""
        text = self.template.replace("$__rate_interval", window)
        text = re.sub(r"\$(job|run|instance)\b", ".*", text)
        assert "$" not in text, text
        return text

    def name(self, labels: Mapping[str, str]) -> str:
        """Returns the legend's name of a series."""
        return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), self.legend)

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel['title']}: {self.letter}"


def read_dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def panels(name: str) -> list[dict[str, Any]]:
    """Returns the panels without the rows' titles."""
    return [panel for panel in read_dashboard(name)["panels"] if panel["type"] != "row"]


def questions(name: str) -> list[Question]:
    return [
        Question(name, panel, target["refId"], target["expr"], target["legendFormat"])
        for panel in panels(name)
        for target in panel["targets"]
    ]
