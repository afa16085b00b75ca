from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The real server's process; bills of materials.
sys.path += [str(ROOT / "tests/e2e"), str(ROOT / "deploy/release")]
