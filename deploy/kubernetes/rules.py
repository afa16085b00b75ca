#!/usr/bin/env python3
"""Writes the rules of deploy/prometheus as an object of the Prometheus operator.

--check compares instead of writing. The text is indented, not parsed, so that comments stay.
"""

from __future__ import annotations

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parent / "prometheus/rules.yml"
OBJECT = HERE / "components/monitoring/prometheusrule.yaml"
HEADER = """\
# Written by deploy/kubernetes/rules.py from deploy/prometheus/rules.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: counterweight
  labels:
    app.kubernetes.io/name: counterweight
    app.kubernetes.io/instance: counterweight
spec:
"""


def rules() -> str:
    """Returns the object's text."""
    lines = RULES.read_text().splitlines()
    groups = lines[lines.index("groups:") :]
    return HEADER + "".join(f"  {line}".rstrip() + "\n" for line in groups)


def main() -> int:
    if "--check" not in sys.argv:
        OBJECT.write_text(rules())
    elif OBJECT.read_text() != rules():
        print(f"{OBJECT} is older than {RULES}; run make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
