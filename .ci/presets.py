"""Prints client/python/counterweight_rl/presets.py. Usage: presets.py kernels/METHODS.md"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HEAD = '''"""The presets of this release: the names of their parameters, and which have a policy loss.

Made by `make docs` from kernels/METHODS.md. Edits here are lost.
"""

from __future__ import annotations

PARAMETERS: dict[str, tuple[str, ...]] = {
'''


def main() -> None:
    print(HEAD, end="")
    page = Path(sys.argv[1]).read_text()
    for section in re.split(r"(?m)^### ", page)[1:]:
        name, _, text = section.partition("\n")
        table = re.search(r"(?m)^\| parameter .*\n\|-.*\n((?:\| .*\n)*)", text)
        names = re.findall(r"(?m)^\| `(\w+)` ", table[1]) if table else []
        listed = ", ".join(f'"{one}"' for one in names) + ("," if len(names) == 1 else "")
        line = f'    "{name}": ({listed}),'
        lines = [f'    "{name}": (', *(f'        "{one}",' for one in names), "    ),"]
        print(line if len(line) <= 100 else "\n".join(lines))  # as ruff's formatter
    losses = page.partition("\n## Losses\n")[2].partition("\n## ")[0]
    named = [f'        "{one}",' for one in re.findall(r"(?m)^### (\w+)$", losses)]
    print("}\nWITH_LOSS = frozenset(\n    (", *named, "    )\n)", sep="\n")


main()
