"""The notebook's cells run in order, and print what it shows."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

from server_process import REPOSITORY

NOTEBOOK = REPOSITORY / "client/python/examples/first_batch.ipynb"


def test_cells_print_what_the_notebook_shows(local_library: None) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, Any] = {}
    shown = 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
        outputs = ["".join(output["text"]) for output in cell["outputs"]]
        assert outputs == ([printed.getvalue()] if printed.getvalue() else [])
        shown += len(outputs)
    names["client"].close()
    assert shown == 3
