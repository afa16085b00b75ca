"""Makes one page of the measurements of tests/gpu_check.sh.

    tests/benchmark/gpu_table.py --results=build/gpu-check/results --report=FILE [--update]

The folder has about.json, JSON lines (*.jsonl) of gpu_bench and gpu_torch.py, parts.tsv (part,
verdict, seconds, last line), and the output of ncu and sass.py. The page names missing parts.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

import gpu_profile

Json = dict[str, Any]
PAGE = pathlib.Path(__file__).resolve().parent / "GPU.md"
HEAD = """<!-- Made by `gpu_table.py --update`. Edits here are lost. -->

# Results of a run on a GPU

[README.md](README.md#gpu) says what is measured, and how.

"""
# Shares of the copy bandwidth, and of the link's rate.
TARGETS = {
    "token_tis": 0.85,
    "token_tis, no metrics": 0.85,
    "ppo_clip": 0.85,
    "ppo_clip, no metrics": 0.85,
    "token_tis+3_rules": 0.60,
}
LINK_TARGET = 0.80
MISSING = "Not measured in this run."


def table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return MISSING
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def read_lines(folder: pathlib.Path) -> list[Json]:
    found: list[Json] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            # An interrupted part leaves half a line behind.
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return found


class Report:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.lines = read_lines(folder)
        about = folder / "about.json"
        self.about: Json = json.loads(about.read_text()) if about.exists() else {}
        copies = self.part("copy")
        self.copy = copies[0]["best"] if copies else None

    def part(self, name: str, **fields: Any) -> list[Json]:
        return [
            line
            for line in self.lines
            if line["part"] == name and all(line.get(k) == v for k, v in fields.items())
        ]

    def markdown(self) -> str:
        about = self.about
        first = ", ".join(
            str(about.get(key, "unknown")) for key in ("date", "device", "driver", "commit")
        )
        parts = [f"{first}. {self.first_numbers()}"]
        parts += ["### What was checked", self.verdicts()]
        parts += ["### Targets of the kernels", self.targets()]
        for name, title in (
            ("lengths", "By length of the rows"),
            ("sizes", "By size of the batch"),
            ("methods", "Every method"),
        ):
            parts += [f"### {title}", self.kernels(name)]
        parts += ["### From and to the host's memory", self.requests()]
        parts += ["### Requests side by side", self.together()]
        parts += ["### Profile", gpu_profile.markdown(self.folder)]
        code = self.folder / "sass.md"
        parts += ["### Instructions", code.read_text().strip() if code.exists() else MISSING]
        return "\n\n".join(parts) + "\n"

    def first_numbers(self) -> str:
        if self.copy is None:
            return "The device's copy bandwidth was not measured."
        return (
            f"The device copies its own memory at {self.copy * 1e-9:.0f} GB/s, reading and writing "
            f"counted; `token_tis` must move {self.bytes_of('token_tis')} bytes a token, `ppo_clip` "
            f"with gradient {self.bytes_of('ppo_clip')}."
        )

    def bytes_of(self, work: str) -> str:
        found = self.part("kernel", work=work)
        return str(found[0]["bytes_per_token"]) if found else "?"

    def verdicts(self) -> str:
        path = self.folder / "parts.tsv"
        rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
        return table(["part", "verdict", "seconds", "last line"], rows)

    def share(self, line: Json) -> float | None:
        if not self.copy:
            return None
        moved: float = line["bytes_per_token"] * line["tokens"]
        return moved / line["median"] / self.copy

    def targets(self) -> str:
        rows = []
        for work, target in TARGETS.items():
            for line in self.part("kernel", table="methods", work=work):
                share = self.share(line)
                if share is None:
                    continue
                verdict = "met" if share >= target else "missed"
                rows.append([f"`{work}`", f">= {target:.0%}", f"{share:.1%}", verdict])
        return table(["work", "target, of the copy bandwidth", "measured", "verdict"], rows)

    def kernels(self, name: str) -> str:
        """The times of one table; a shape that all rows share is named once, above it."""
        lines = self.part("kernel", table=name)
        columns = {
            "work": [f"`{line['work']}`" for line in lines],
            "tokens": [f"{line['tokens'] / 2**20:g} Mi" for line in lines],
            "length": [str(line["length"]) for line in lines],
        }
        shared = [name for name in ("tokens", "length") if len(set(columns[name])) == 1]
        above = ", ".join(f"{name} {columns.pop(name)[0]}" for name in shared)
        for time in ("best", "median", "call"):
            columns[f"{time}, ms"] = [f"{line[time] * 1e3:.3f}" for line in lines]
        shares = [self.share(line) for line in lines]
        columns["of copy"] = ["-" if share is None else f"{share:.1%}" for share in shares]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        return f"In all rows: {above}.\n\n" * bool(shared) + table(list(columns), rows)

    def requests(self) -> str:
        links = self.part("link")
        text = table(
            ["memory", "up, GB/s", "down, GB/s", "both at once, GB/s"],
            [
                [f["memory"]]
                + [f"{f[key] * 1e-9:.1f}" if f[key] else "-" for key in ("up", "down", "both")]
                for f in links
            ],
        )
        pinned = next((f for f in links if f["memory"] == "pinned" and f["both"]), None)
        rows = []
        for line in self.part("request"):
            cells = [
                f"`{line['work']}`",
                line["memory"],
                f"{line['tokens'] / 2**20:g} Mi",
                f"{line['up_bytes'] / 2**20:.0f} + {line['down_bytes'] / 2**20:.0f} MiB",
                f"{line['median'] * 1e3:.2f}",
                f"{(line['up_bytes'] + line['down_bytes']) / line['median'] * 1e-9:.1f}",
            ]
            if pinned:
                share = self.floor(line, pinned) / line["median"]
                cells += [f"{share:.1%}"]
                judged = "met" if share >= LINK_TARGET else "missed"
                cells += [judged if line["memory"] == "pinned" else "no target"]
            else:
                cells += ["-", "-"]
            rows.append(cells)
        head = ["work", "memory", "tokens", "up + down", "median, ms", "GB/s"]
        head += ["of the link", f"target {LINK_TARGET:.0%}"]
        return (
            f"{text}\n\n{table(head, rows)}\n\n`of the link`: the time that the bytes must take, "
            "over the time taken. They must take what the busier direction takes alone, or both "
            "together at the rate of both at once, whichever is longer; rates of pinned memory."
        )

    @staticmethod
    def floor(line: Json, link: Json) -> float:
        up, down = line["up_bytes"], line["down_bytes"]
        least: float = max(up / link["up"], down / link["down"], (up + down) / link["both"])
        return least

    def together(self) -> str:
        rows = []
        for line in self.part("together"):
            serial = line["alone"] * line["threads"]
            rows.append(
                [
                    f"{line['threads']} requests at once, {line['tokens'] / 2**20:g} Mi tokens each",
                    f"{line['together'] * 1e3:.2f} ms for all; one after the other "
                    f"{serial * 1e3:.2f} ms, {serial / line['together']:.2f} x",
                ]
            )
        for line in self.part("fairness"):
            rows.append(
                [
                    f"{line['small_tokens']} tokens, p50, beside {line['large_tokens'] / 2**20:g} "
                    f"Mi that never pause ({line['large_alone'] * 1e3:.1f} ms each)",
                    f"{line['small_beside'] * 1e3:.2f} ms; alone {line['small_alone'] * 1e3:.2f} "
                    f"ms, {line['small_beside'] / line['small_alone']:.1f} x",
                ]
            )
        return table(["what", "measured"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--report", type=pathlib.Path, required=True)
    parser.add_argument("--update", action="store_true", help="write tests/benchmark/GPU.md too")
    arguments = parser.parse_args()
    markdown = Report(arguments.results).markdown()
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(markdown)
    print(markdown)
    if arguments.update:
        PAGE.write_text(HEAD + markdown.replace("\n### ", "\n## "))


if __name__ == "__main__":
    main()
