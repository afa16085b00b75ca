"""tests/gpu_check.sh with programs that were built elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "gpu_check.sh"


def run_parts(
    folder: Path, prebuilt: Path, parts: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, f"--prebuilt={prebuilt}", f"--parts={parts}", "--candidate=generic", *flags],
        env={**os.environ, "GPU_CHECK_BUILD": str(folder / "build")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def packed_programs(folder: Path, **programs: str) -> Path:
    """Makes a bundle as tests/gpu_check/bundle does, with shell scripts for programs."""
    bundle = folder / "bundle"
    (bundle / "bin").mkdir(parents=True)
    for name, body in programs.items():
        program = bundle / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    archive = folder / "bundle.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(bundle, "bundle")
    return archive


def test_programs_out_of_a_packed_bundle(tmp_path: Path) -> None:
    archive = packed_programs(tmp_path, gpu_check="echo compared 3, 0 differ")
    done = run_parts(tmp_path, archive, "build,bytes")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = (tmp_path / "build" / "results" / "parts.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in parts] == ["passed", "passed"]
    assert parts[1].endswith("compared 3, 0 differ")


def test_a_part_that_fails_or_misses_its_program_fails_the_command(tmp_path: Path) -> None:
    archive = packed_programs(tmp_path, gpu_check="echo differs; exit 1")
    done = run_parts(tmp_path, archive, "bytes,requests,server")
    assert done.returncode == 1
    assert "failed: bytes requests; skipped: server" in done.stdout


def test_a_torn_bundle_is_refused_before_any_part(tmp_path: Path) -> None:
    archive = packed_programs(tmp_path, gpu_check="exit 0")
    archive.write_bytes(archive.read_bytes()[:40])
    done = run_parts(tmp_path, archive, "bytes")
    assert done.returncode == 2
    assert "bundle.tar.gz is no archive of tests/gpu_check/bundle" in done.stderr
    assert "===" not in done.stdout


def test_results_are_one_file_to_carry_back(tmp_path: Path) -> None:
    archive = packed_programs(tmp_path, gpu_check="echo compared 3, 0 differ")
    done = run_parts(tmp_path, archive, "bytes")
    packed = tmp_path / "build" / "results.tgz"
    assert f"all results: {packed}" in done.stdout
    with tarfile.open(packed) as tar:
        assert {"results/bytes.log", "results/parts.tsv", "results/about.json"} <= set(
            tar.getnames()
        )


def test_the_report_ends_before_the_deadline(tmp_path: Path) -> None:
    archive = packed_programs(tmp_path, gpu_check="echo compared 3, 0 differ")
    done = run_parts(tmp_path, archive, "bytes,report", "--deadline=100")
    assert re.search(r"=== bytes \(\d+ s so far, at most (3\d|40) s", done.stdout), done.stdout
    done = run_parts(tmp_path, archive, "bytes,report", "--deadline=60")
    assert "skipped: no time left" in done.stdout
    assert re.search(r"=== report \(\d+ s so far, at most 60 s", done.stdout), done.stdout


def run_plan(folder: Path, prebuilt: Path, plan: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, plan, f"--prebuilt={prebuilt}", "--candidate=generic"],
        env={**os.environ, "GPU_CHECK_BUILD": str(folder / "build")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_call_of_the_plan_ends_with_what_it_proved(tmp_path: Path) -> None:
    archive = packed_programs(tmp_path, gpu_check="echo compared 3, 0 differ")
    done = run_plan(tmp_path, archive, "--plan=1")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith(
        "gpu_check: call 1 of 5: tests/gpu_check.sh --parts=bytes,report --deadline=560 --prebuilt="
    )
    proof = "gpu_check: proved: bytes: every answer has the CPU's bytes"
    assert proof in rest
    results = tmp_path / "build/results"
    assert (results / "proved_bytes_report.txt").read_text() == f"{proof}\n"


def test_the_plan_has_five_calls_and_each_part_once(tmp_path: Path) -> None:
    archive = packed_programs(
        tmp_path, gpu_check="echo differs; exit 1", kernels_gpu_test="echo passed"
    )
    done = run_plan(tmp_path, archive, "--plan")
    assert done.returncode == 1
    calls = re.findall(r"call \d of 5: .* --parts=(\S+) --deadline=560", done.stdout)
    parts = [part for call in calls for part in call.split(",")]
    assert len(calls) == 5
    assert parts.count("report") == 5
    every = re.search(r"^parts=(\S+)$", SCRIPT.read_text(), re.MULTILINE)
    assert every
    assert sorted({*parts, "build"}) == sorted(every[1].split(","))
    assert "not proved: bytes: " in done.stdout
    assert "proved: tests: kernels_gpu_test passes" in done.stdout
    refused = run_plan(tmp_path, archive, "--plan=6")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "unknown argument '--plan=6'" in refused.stderr
