"""Runs all benchmarks in one go and prints their tables; `make bench` builds and calls it.

    .venv-torch/bin/python tests/benchmark/bench.py --build build/release [--update]

Results go to build/bench: results.json has everything, tables.md the printed tables.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Proxies must not intercept connections to servers on this machine.
os.environ["no_proxy"] = "127.0.0.1,localhost"

try:
    import clients
    import e2e
    import load
    import steps
    import tables
    import tls
except ModuleNotFoundError as error:
    sys.exit(
        f"bench: Python has no module {error.name}; `make bench` runs this with one that has it"
    )

# Tokens of the batches with sequences of different lengths, as in kernels_bench.cc.
TOKENS = 1_000_000
PROGRAMS = ("counterweight-server", "benchmark/kernels_bench", "counterweight-bench")
RESULTS_HEAD = """<!-- Made by `make bench ARGS=--update`. Edits here are lost. -->

# Results of a run

[README.md](README.md) says what is measured.

"""

Json = dict[str, Any]


def say(line: str) -> None:
    print(f"bench: {line}", flush=True)


def run_kernels(build: pathlib.Path) -> list[Json]:
    """Returns the fastest repetition of each case."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "kernels.json"
        subprocess.run(
            [
                str(build / "benchmark/kernels_bench"),
                f"--benchmark_out={out}",
                "--benchmark_out_format=json",
            ],
            stdout=subprocess.DEVNULL,
            # Debian builds the library with assertions, about which it warns each time.
            stderr=subprocess.DEVNULL,
            check=True,
        )
        repetitions = json.loads(out.read_text())["benchmarks"]
    best: dict[str, Json] = {}
    for row in repetitions:
        if row["run_type"] != "iteration":
            continue
        if row.get("error_occurred"):
            sys.exit(f"bench: {row['name']}: {row['error_message']}")
        known = best.setdefault(row["run_name"], row)
        if row["ns_per_token"] < known["ns_per_token"]:
            best[row["run_name"]] = row
    return [kernel_row(name, row) for name, row in best.items()]


def kernel_row(name: str, row: Json) -> Json:
    method, isa, tokens, length = name.split("/")[:4]
    return {
        "method": method,
        "isa": isa,
        "tokens": int(tokens),
        "length": int(length),
        # Rates are of the time that the case measures; the library writes an inverted one in seconds.
        **{
            counter: row[counter]
            for counter in (
                "ns_per_token",
                "GB_per_s",
                "memcpy_GB_per_s",
                "of_memcpy",
                "bytes_per_token",
            )
        },
    }


def torch_python() -> str | None:
    """Returns a Python with torch: this one, or .venv-torch's."""
    for python in (sys.executable, str(ROOT / ".venv-torch/bin/python")):
        if not pathlib.Path(python).exists():
            continue
        found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
        if found.returncode == 0:
            return python
    return None


def run_torch(python: str) -> Json:
    def run(script: str) -> Json:
        done = subprocess.run(
            [python, str(HERE / script)], stdout=subprocess.PIPE, text=True, check=True
        )
        result: Json = json.loads(done.stdout)
        return result

    return {**run("eager_torch.py"), "compiled": run("compiled_torch.py")["rows"]}


def run_calls(python: str, build: pathlib.Path) -> list[Json]:
    done = subprocess.run(
        [python, str(HERE / "calls.py"), "--build", str(build)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows: list[Json] = json.loads(done.stdout)
    return rows


def machine() -> Json:
    cpu = "unknown CPU"
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE)
        cpu = found[1].strip() if found else cpu
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}


def commit() -> str:
    """Returns the working tree's commit, with a plus if files have changed since."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def update(markdown: str) -> None:
    """Puts the tables into RESULTS.md."""
    page = RESULTS_HEAD + markdown.replace("\n### ", "\n## ")
    (HERE / "RESULTS.md").write_text(page)
    say("updated tests/benchmark/RESULTS.md")


def measure(build: pathlib.Path) -> Json:
    about = machine()
    say("kernels, one thread, by method and length (two minutes)")
    kernels = run_kernels(build)
    python = torch_python()
    if python is None:
        say("eager torch: skipped, no torch here; .ci/setup torch installs it (5 GB)")
    else:
        say("the same work in torch, eager and compiled (eight minutes, most of it compiling)")
    torch = run_torch(python) if python else None
    say("calls from torch tensors: eager, compiled, local:, served (five minutes)")
    felt = run_calls(python, build) if python else None
    say("a step of 64 micro-batches (half a minute)")
    step = steps.measure()
    say("Correct and an echo over a Unix socket, shared memory (a minute)")
    wire = e2e.measure(build)
    say("TLS against plain TCP (a minute)")
    encryption = tls.measure()
    say("the clients of all languages (a minute)")
    languages = clients.measure(build)
    say("sizes, clients and memory under load (two minutes)")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": about,
        "tokens": TOKENS,
        "memcpy_GB_per_s": kernels[0]["memcpy_GB_per_s"],
        "kernels": kernels,
        "torch": torch,
        "calls": felt,
        "steps": step,
        "wire": wire,
        "tls": encryption,
        "clients": languages,
        "load": load.measure(build),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument(
        "--update",
        action="store_true",
        help="write the tables into tests/benchmark/RESULTS.md too",
    )
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    for program in PROGRAMS:
        if not (build / program).is_file():
            sys.exit(
                f"bench: there is no {build / program}; run `make build`, or name the folder with --build"
            )
    os.environ["COUNTERWEIGHT_SERVER"] = str(build / "counterweight-server")

    results = measure(build)
    markdown = tables.markdown(results)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (arguments.output / "tables.md").write_text(markdown)
    print(f"\n{markdown}")
    say(f"results.json and tables.md are in {arguments.output}")
    if arguments.update:
        update(markdown)


if __name__ == "__main__":
    main()
