"""Counts the instructions per token in compiled device code, without a GPU.

    tests/benchmark/sass.py --build build/cuda
    tests/benchmark/sass.py --object build/cuda/kernels/cuda/CMakeFiles/.../launch.cu.o

Prints a table: for each kernel the instructions in its main loop by the unit that takes them, per
token of a thread, and the share of the copy bandwidth that this many instructions allow. With
--build the sources are compiled again (nvcc, a minute or two), which also reports spills.

It counts code, not execution: both sides of branches, and one round of inner loops. Kernels without
branches in their loop are counted exactly. CUOBJDUMP and NVCC name the tools if they are not on
PATH.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import sass_loops

# An H200: assumptions of the model, not readings. The copy bandwidth, bytes read and written, was
# measured on another such machine.
MULTIPROCESSORS = 132
CLOCK = 1.755e9
COPY_BANDWIDTH = 4.3e12
ISSUED_PER_CLOCK = 128
# Results per clock and multiprocessor of compute capability 9.0: CUDA C++ Programming Guide,
# arithmetic instructions. Multiplications and float32 additions have two units of 64.
UNITS = {
    "fma": (128, "FADD FMUL FFMA IMAD HFMA2 HADD2 HMUL2 FSWZADD"),
    "fp64": (64, "DADD DMUL DFMA DSETP DMNMX"),
    "memory": (32, "LDG STG LDL STL LDS STS LD ST RED REDG ATOM ATOMG LDGSTS"),
    "shuffle": (32, "SHFL REDUX VOTE MATCH"),
    "special": (16, "MUFU F2F F2I I2F FRND"),
}
ALU = 64
UNIT_OF = {name: unit for unit, (_, names) in UNITS.items() for name in names.split()}
# Taken by the multiprocessor's uniform path or by none of the units.
UNCOUNTED = "BRA BSSY BSYNC BREAK CALL RET EXIT NOP WARPSYNC ULDC UMOV UIADD3 USHF ULEA ULOP3 USEL"
FREE = frozenset(UNCOUNTED.split())
WHOLE_TILE_PER_THREAD = 8


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"sass: {command[0]} failed:\n{done.stderr or done.stdout}")
    return done.stdout + done.stderr


def tool(variable: str, name: str) -> str:
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        sys.exit(
            f"sass: no {name} on PATH; {variable} can name it (CUDA's and triton's wheels have)"
        )
    return found


def readable(mangled: str) -> str:
    """The function's name with its template arguments."""
    name = mangled
    if shutil.which("c++filt"):
        name = run("c++filt", mangled).strip()
    name = re.sub(r"\(anonymous namespace\)::|counterweight::kernels::|isa_cuda::|^void ", "", name)
    depth = 0
    for at, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0 and at > 0:
            return re.sub(r"\([\w:]*\)(?=\d|true|false)", "", name[:at])
    return name


def compile_again(build: pathlib.Path, folder: pathlib.Path) -> tuple[list[pathlib.Path], str]:
    """The cubins of every .cu file of a build for sm_90, and the output of ptxas."""
    database = build / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"sass: no {database}; configure with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = []
    for n, entry in enumerate(json.loads(database.read_text())):
        if not entry["file"].endswith(".cu"):
            continue
        words = shlex.split(entry["command"])
        at = words.index("-o")
        words[at : at + 2] = []
        words = [w for w in words if w != "-c" and not w.startswith("--generate-code")]
        cubin = folder / f"{n}.cubin"
        words += ["-arch=sm_90", "-cubin", "-Xptxas", "-v", "-o", str(cubin)]
        words[0] = os.environ.get("NVCC", words[0])
        commands.append((words, cubin))
    if not commands:
        sys.exit(f"sass: no CUDA sources in {database}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda c: run(*c[0]), commands))
    return [cubin for _, cubin in commands], "\n".join(said)


def spills(ptxas: str) -> dict[str, str]:
    """Bytes of spill stores and loads by mangled name."""
    found = re.findall(
        r"Function properties for (\S+)\s.*?(\d+) bytes spill stores, (\d+) bytes spill loads",
        ptxas,
        re.DOTALL,
    )
    return {name: f"{stores} + {loads}" for name, stores, loads in found}


def resources(text: str) -> dict[str, tuple[str, str]]:
    """Registers and stack frame by mangled name."""
    return {
        name: (registers, stack)
        for name, registers, stack in re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", text)
    }


def unit_of(instruction: sass_loops.Instruction) -> str | None:
    if instruction.base in FREE:
        return None
    return UNIT_OF.get(instruction.base, "alu")


def limits(counts: collections.Counter[str], total: int, tokens: int) -> tuple[str, float]:
    """The unit that limits, and the tokens per second that it lets pass."""
    clocks = {"issue": total / ISSUED_PER_CLOCK, "alu": counts["alu"] / ALU}
    for unit, (per_clock, _) in UNITS.items():
        clocks[unit] = counts[unit] / per_clock
    unit = max(clocks, key=lambda u: clocks[u])
    return unit, tokens * MULTIPROCESSORS * CLOCK / clocks[unit]


def row(
    name: str,
    code: list[sass_loops.Instruction],
    tokens: int,
    bytes_per_token: int,
) -> list[str]:
    loops = sass_loops.Graph(code).loops()
    if not loops:
        return [f"`{name}`", str(len(code)), "no loop"] + ["-"] * 8
    main = loops[0]
    counts = collections.Counter(u for i in main.instructions if (u := unit_of(i)))
    local = sum(i.base in ("LDL", "STL") for i in main.instructions)
    total = len(main.instructions)
    unit, rate = limits(counts, total, tokens)
    share = min(1.0, rate * bytes_per_token / COPY_BANDWIDTH)
    inner = f" (+{main.inner} loops)" if main.inner else ""
    return [
        f"`{name}`",
        str(len(code)),
        f"{total}{inner}",
        f"{total / tokens:.1f}",
        f"{counts['fma'] / tokens:.1f}",
        f"{counts['alu'] / tokens:.1f}",
        f"{counts['fp64'] / tokens:.1f}",
        f"{counts['special'] / tokens:.1f}",
        f"{counts['memory'] / tokens:.1f} ({local / tokens:.1f})",
        unit,
        f"{100 * share:.0f} %",
    ]


def value_for(name: str, choices: list[str], default: int) -> int:
    """Returns the N of the first PATTERN=N with a pattern that is in the name."""
    for choice in choices:
        pattern, _, number = choice.rpartition("=")
        if re.search(pattern, name):
            return int(number)
    return default


def table(arguments: argparse.Namespace, objects: list[pathlib.Path], ptxas: str) -> str:
    spilt = spills(ptxas)
    head = ["kernel", "code", "main loop", "per token", "fma", "alu", "fp64", "special"]
    head += ["memory (local)", "limit", "of copy", "registers", "stack", "spills, bytes"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    dumper = tool("CUOBJDUMP", "cuobjdump")
    for path in objects:
        used = resources(run(dumper, "-res-usage", str(path)))
        for mangled, code in sass_loops.parse(run(dumper, "-sass", str(path))).items():
            name = readable(mangled)
            if not re.search(arguments.kernels, name):
                continue
            tokens = value_for(name, arguments.tokens, WHOLE_TILE_PER_THREAD)
            cells = row(name, code, tokens, value_for(name, arguments.bytes, 14))
            cells += used.get(mangled, ("-", "-"))
            cells.append(spilt.get(mangled, "-"))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--build", type=pathlib.Path, help="a build folder; compiles its .cu files")
    source.add_argument(
        "--object", type=pathlib.Path, nargs="+", help="objects or cubins, as they are"
    )
    parser.add_argument("--kernels", default="walk", help="names that match are shown")
    parser.add_argument(
        "--tokens", nargs="*", default=[], metavar="PATTERN=N",
        help=f"tokens of a thread in a round of the main loop, else {WHOLE_TILE_PER_THREAD}",
    )  # fmt: skip
    parser.add_argument(
        "--bytes", nargs="*", default=[], metavar="PATTERN=N",
        help="bytes that a token must move, else 14: token weights and the keep mask",
    )  # fmt: skip
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ptxas = ""
        objects = arguments.object
        if arguments.build:
            objects, ptxas = compile_again(arguments.build, pathlib.Path(folder))
        print(table(arguments, objects, ptxas))
    print(
        f"\nModel, not measured: {MULTIPROCESSORS} multiprocessors at {CLOCK / 1e9} GHz, copy "
        f"bandwidth {COPY_BANDWIDTH / 1e12} TB/s; of branches both sides are counted, of inner "
        "loops one round. `memory (local)`: of which to local memory."
    )


if __name__ == "__main__":
    main()
