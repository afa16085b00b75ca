"""Instructions along one way through a compiled kernel: what it executes, where sass.py counts
both sides of every branch.

    tests/benchmark/sass_path.py --object launch_both.cu.o --kernel '<true, true, 1>' \\
        --begin b20 --end 56f0 --taken ec0 1770 2090

Follows the code from --begin to --end. A conditional branch is taken only at the addresses of
--taken, which a reader of the code chooses: for blocks of finite float32 numbers within all clamps
those are the branches to float32's loads, past the repair of non-finite tokens and past features
that a plan lacks. --branches lists the branches on the path.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import pathlib
import re
import sys

import sass
import sass_loops


def follow(
    code: list[sass_loops.Instruction], begin: int, end: int, taken: set[int]
) -> list[sass_loops.Instruction]:
    """The instructions from `begin` to `end`; exits if the way passes one of them twice."""
    index = {instruction.address: i for i, instruction in enumerate(code)}
    path: list[sass_loops.Instruction] = []
    seen: set[int] = set()
    address = begin
    while True:
        if address not in index:
            sys.exit(f"sass_path: no instruction at {address:x}")
        if address in seen:
            sys.exit(f"sass_path: the way comes back to {address:x} and never to {end:x}")
        seen.add(address)
        instruction = code[index[address]]
        path.append(instruction)
        if address == end:
            return path
        jumps = is_branch(instruction) and (not instruction.predicated or address in taken)
        if jumps and instruction.target is not None:
            address = instruction.target
        elif index[address] + 1 < len(code):
            address = code[index[address] + 1].address
        else:
            sys.exit("sass_path: the code ends before --end")


def is_branch(instruction: sass_loops.Instruction) -> bool:
    # A warp that is together does not take BRA.DIV.
    return instruction.base == "BRA" and not instruction.name.startswith("BRA.DIV")


def summary(path: list[sass_loops.Instruction], tokens: int, bytes_per_token: int) -> str:
    counts = collections.Counter(u for i in path if (u := sass.unit_of(i)))
    unit, rate = sass.limits(counts, len(path), tokens)
    share = min(1.0, rate * bytes_per_token / sass.COPY_BANDWIDTH)
    units = ", ".join(f"{name} {count / tokens:.1f}" for name, count in counts.most_common())
    return (
        f"{len(path)} instructions, {len(path) / tokens:.1f} a token ({units}); "
        f"{unit} allows {100 * share:.0f} % of the copy bandwidth"
    )


def from_hex(address: str) -> int:
    return int(address, 16)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--object", type=pathlib.Path, required=True)
    parser.add_argument("--kernel", required=True, help="part of its name, as sass.py prints it")
    parser.add_argument("--begin", required=True, type=from_hex, metavar="ADDRESS")
    parser.add_argument("--end", required=True, type=from_hex, metavar="ADDRESS")
    parser.add_argument("--taken", nargs="*", default=[], type=from_hex, metavar="ADDRESS")
    parser.add_argument("--tokens", type=int, default=sass.WHOLE_TILE_PER_THREAD)
    parser.add_argument("--bytes", type=int, default=14, help="that a token must move")
    parser.add_argument("--branches", action="store_true")
    arguments = parser.parse_args()
    dump = sass.run(sass.tool("CUOBJDUMP", "cuobjdump"), "-sass", str(arguments.object))
    kernels = {
        name: code
        for mangled, code in sass_loops.parse(dump).items()
        if re.search(re.escape(arguments.kernel), name := sass.readable(mangled))
    }
    if len(kernels) != 1:
        sys.exit(f"sass_path: --kernel names {len(kernels)} kernels: {', '.join(kernels)}")
    (code,) = kernels.values()
    path = follow(code, arguments.begin, arguments.end, set(arguments.taken))
    if arguments.branches:
        for here, there in itertools.pairwise(path):
            if is_branch(here) and here.predicated:
                word = "taken" if there.address == here.target else "not taken"
                print(f"{here.address:x} to {here.target or 0:x}: {word}")
    print(summary(path, arguments.tokens, arguments.bytes))


if __name__ == "__main__":
    main()
