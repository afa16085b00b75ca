"""The hand-written pages together have at most 24,000 words."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 24_000
# Written by `make docs`, by `make bench`, by tests/benchmark/gpu_table.py and by systems_page_test.
GENERATED = {
    "kernels/METHODS.md",
    "kernels/doctor/FINDINGS.md",
    "server/METRICS.md",
    "server/engine/dialects/SYSTEMS.md",
    "tests/benchmark/GPU.md",
    "tests/benchmark/RESULTS.md",
}
# Grow with each release and each measurement, and are not read as a whole.
RECORDS = {"CHANGELOG.md", "tests/benchmark/history.md"}


def pages() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_excluded_pages_exist() -> None:
    assert set(pages()) >= GENERATED | RECORDS


def test_hand_written_pages_are_short() -> None:
    words = {
        name: len((ROOT / name).read_text().split())
        for name in pages()
        if name not in GENERATED | RECORDS
    }
    longest = sorted(words, key=lambda name: -words[name])[:8]
    assert sum(words.values()) <= LIMIT, (
        f"{sum(words.values())} words, {LIMIT} are allowed: keep a fact on one page and link to it, write what code does "
        "into its header, and cut history. Longest: "
        + ", ".join(f"{name} {words[name]}" for name in longest)
    )
