"""Writes drift.json and service.json, or with --check reports whether they are current.

.venv/bin/python deploy/grafana/dashboards.py
"""

from __future__ import annotations

import difflib
import json
import pathlib
import sys

from drift_dashboard import drift_dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from service_dashboard import service_dashboard

HERE = pathlib.Path(__file__).parent
DASHBOARDS = {"drift.json": drift_dashboard, "service.json": service_dashboard}


def main() -> None:
    stale = False
    for name, build in DASHBOARDS.items():
        path = HERE / name
        text = json.dumps(build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
            print(f"dashboards: wrote {name}")
            continue
        old = path.read_text() if path.exists() else ""
        if old != text:
            stale = True
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True)))
    if stale:
        sys.exit("dashboards: deploy/grafana is not what its Python code gives; run make docs")


if __name__ == "__main__":
    main()
