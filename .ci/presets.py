"""Prints client/python/counterweight_rl/presets.py. Usage: presets.py kernels/METHODS.md"""

from __future__ import annotations

import re
import sys
from pathlib import Path

WIDTH = 100  # of ruff's formatter
HEAD = '''"""The presets of this release, with the names of their parameters.

Made by `make docs` from kernels/METHODS.md. Edits here are lost.
"""

from __future__ import annotations

PARAMETERS: dict[str, tuple[str, ...]] = {
'''


def main() -> None:
    print(HEAD, end="")
    sections = re.split(r"(?m)^### ", Path(sys.argv[1]).read_text())[1:]
    for section in sections:
        name, _, text = section.partition("\n")
        table = re.search(r"(?m)^\| parameter .*\n\|-.*\n((?:\| .*\n)*)", text)
        names = re.findall(r"(?m)^\| `(\w+)` ", table[1]) if table else []
        listed = ", ".join(f'"{one}"' for one in names) + ("," if len(names) == 1 else "")
        line = f'    "{name}": ({listed}),'
        if len(line) > WIDTH:
            line = "\n".join(
                [f'    "{name}": (', *(f'        "{one}",' for one in names), "    ),"]
            )
        print(line)
    print("}")


main()
