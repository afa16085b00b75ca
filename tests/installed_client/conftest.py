from __future__ import annotations

import pathlib
import sys

# The real server's process.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
