"""Makes one table of ncu's report on the main kernels."""

from __future__ import annotations

import csv
import pathlib
import re

MISSING = "Not measured in this run."
UNITS = {"nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0, "ns": 1e-9, "us": 1e-6}
UNITS |= {"ms": 1e-3, "s": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
STALL = re.compile(r"smsp__average_warps?_issue_stalled_(\w+?)_per_issue_active\.ratio")
STALL_ALSO = re.compile(r"smsp__average_warp_latency_issue_stalled_(\w+?)\.ratio")

Launch = dict[str, tuple[str, str]]  # metric: (unit, value)


def launches(text: str) -> list[Launch]:
    """Reads the output of `ncu --csv --page raw`: names, then units, then a line for each
    launch."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    rows = list(csv.reader(lines[begin:]))
    names, units = rows[0], rows[1]
    return [
        {n: (u, v) for n, u, v in zip(names, units, row, strict=False)}
        for row in rows[2:]
        if len(row) == len(names)
    ]


def number(launch: Launch, name: str) -> float | None:
    unit, value = launch.get(name, ("", ""))
    try:
        return float(value.replace(",", "")) * UNITS.get(unit, 1.0)
    except ValueError:
        return None


def cell(launch: Launch, name: str, pattern: str, factor: float = 1.0) -> str:
    found = number(launch, name)
    return "-" if found is None else pattern.format(found * factor)


def stalls(launch: Launch) -> str:
    """The three reasons for which warps wait longest, in cycles per instruction issued."""
    found: dict[str, float] = {}
    for name in launch:
        match = STALL.match(name) or STALL_ALSO.match(name)
        value = number(launch, name)
        if match and value is not None and match[1] != "selected":
            found[match[1]] = value
    longest = sorted(found, key=lambda reason: -found[reason])[:3]
    return ", ".join(f"{reason} {found[reason]:.1f}" for reason in longest) or "-"


def row(work: str, launch: Launch) -> list[str]:
    seconds = number(launch, "gpu__time_duration.sum")
    moved = [number(launch, f"dram__bytes_{way}.sum") for way in ("read", "write")]
    bandwidth = "-"
    if seconds and None not in moved:
        bandwidth = f"{sum(m for m in moved if m is not None) / seconds * 1e-9:.0f}"
    # Template arguments may be written (bool)1.
    name = re.sub(r"\([a-z ]+\)(?=[-\d])", "", launch.get("Kernel Name", ("", "?"))[1])
    return [
        f"`{work}`",
        f"`{name.split('(')[0].removeprefix('void ')[-60:]}`",
        "-" if seconds is None else f"{seconds * 1e3:.3f}",
        bandwidth,
        cell(launch, "dram__throughput.avg.pct_of_peak_sustained_elapsed", "{:.0f} %"),
        cell(launch, "sm__warps_active.avg.pct_of_peak_sustained_active", "{:.0f} %"),
        cell(launch, "launch__registers_per_thread", "{:.0f}"),
        cell(launch, "smsp__issue_active.avg.pct_of_peak_sustained_active", "{:.0f} %"),
        cell(launch, "smsp__inst_executed.sum", "{:.0f} M", 1e-6),
        stalls(launch),
    ]


HEAD = ["work", "kernel", "ms", "GB/s", "of peak", "occupancy", "registers"]
HEAD += ["issue slots used", "warp instructions", "waits, cycles per issue"]


def markdown(folder: pathlib.Path) -> str:
    """Makes the table of the files ncu_WORK.csv, with the last launch of each kernel of a work."""
    rows = []
    for path in sorted(folder.glob("ncu_*.csv")):
        last: dict[str, Launch] = {}
        for launch in launches(path.read_text()):
            last[launch.get("Kernel Name", ("", "?"))[1]] = launch
        rows += [row(path.stem.removeprefix("ncu_"), launch) for launch in last.values()]
    if not rows:
        return MISSING
    lines = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])
