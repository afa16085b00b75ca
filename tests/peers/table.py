"""Prints one table of the results that ``.ci/peers`` collected; exits with 1 if anything failed.

Usage: table.py RESULT.json...
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys

HEAD = (
    *("peer", "release", "function", "combinations"),
    *("equal", "documented", "known", "skipped", "failed"),
)


def rows(paths: list[pathlib.Path]) -> list[tuple[str, ...]]:
    found = []
    for path in paths:
        result = json.loads(path.read_text())
        functions: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        for outcome in result["outcomes"]:
            kind = outcome["outcome"]
            if kind == "passed":
                kind = "documented" if outcome["why"] else "equal"
            functions[outcome["function"]][kind] += 1
        if not functions:
            # A module that cannot be imported leaves no outcome, which must not count as success.
            functions["nothing ran"]["failed"] = 1
        for function, counts in functions.items():
            numbers = (counts.total(), *(counts[kind] for kind in HEAD[4:]))
            found.append((result["peer"], result["release"], function, *map(str, numbers)))
    return found


def reasons(paths: list[pathlib.Path], kind: str) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for path in paths:
        for outcome in json.loads(path.read_text())["outcomes"]:
            if outcome["outcome"] == kind and outcome["why"]:
                counts[outcome["why"]] += 1
    return counts


def main(paths: list[pathlib.Path]) -> int:
    body = rows(paths)
    widths = [max(map(len, column)) for column in zip(HEAD, *body, strict=True)]
    for row in (HEAD, *body):
        texts = [cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True)]
        texts += [cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True)]
        print("  ".join(texts))
    for kind, title in (("passed", "documented differences"), ("known", "known mistakes")):
        print(f"\n{title}:")
        for reason, count in reasons(paths, kind).most_common():
            print(f"{count:6}  {reason}")
    return int(any(row[-1] != "0" for row in body))


if __name__ == "__main__":
    sys.exit(main([pathlib.Path(argument) for argument in sys.argv[1:]]))
