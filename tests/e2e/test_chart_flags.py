"""The chart's schema has the flags of the server, so that a wrong one is refused before a pod crashes."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from server_process import REPOSITORY, binary

pytestmark = pytest.mark.server_only

CHART = REPOSITORY / "deploy/helm/counterweight"
# Those that the templates set.
OF_TEMPLATES = re.compile(
    r"listen|metrics_listen|metrics_tls|allow_insecure|tls_.*|tokens|socket_mode|shared_memory_.*|backend"
)


def test_the_schema_has_every_flag_of_the_server_and_no_other() -> None:
    told = subprocess.run([binary(), "--help"], capture_output=True, text=True, check=True).stdout
    flags = dict(re.findall(r"^  --(\w+) \(default: (.*)\)$", told, flags=re.M))
    assert len(flags) > 30
    schema = json.loads((CHART / "values.schema.json").read_text())["definitions"]["flags"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert list(properties) == [name for name in flags if not OF_TEMPLATES.fullmatch(name)]
    for name, kind in properties.items():
        if flags[name] in ("true", "false"):
            assert kind == {"type": "boolean"}, name
        elif re.fullmatch(r"[0-9.]+", flags[name]) and name != "devices":
            assert kind == {"$ref": "#/definitions/number"}, name
        else:
            assert kind in ({"$ref": "#/definitions/list"}, {"$ref": "#/definitions/text"}), name


def test_the_charts_alerts_are_a_file_and_a_copy() -> None:
    """Helm prints a warning about a link at every command."""
    copy = CHART / "files/rules.yml"
    assert not copy.is_symlink()
    assert copy.read_text() == (REPOSITORY / "deploy/prometheus/rules.yml").read_text()
