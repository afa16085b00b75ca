"""The kernels beside torch, as Markdown: tables, and the targets of each method."""

from __future__ import annotations

from collections.abc import Iterator

from table_parts import (
    HEADLINE,
    LONG,
    Json,
    instruction_sets,
    kernel,
    table,
    torch_rows,
    verdict,
)

# The least ratio of compiled torch's time to ours, for each method.
COMPILED_TARGET = 4.0
METHOD_LENGTHS = (100, LONG, 10_000)
# Kinds of works by their metrics, as Work.metrics has them; in the order of the targets.
KINDS = {
    "same": "every method with metrics, torch with the same",
    "verl": "every method with metrics, torch with verl's",
    None: "every method without metrics",
}
# Torch's vectors that each instruction set is compared with.
VECTORS = {"v3": "AVX2", "v4": "AVX-512"}


def ours(results: Json, method: str, isa: str, length: int) -> float | None:
    found = kernel(results, method=method, isa=isa, tokens=results["tokens"], length=length)
    return found[0]["ns_per_token"] if found else None


def compiled(results: Json, **wanted: object) -> list[Json]:
    rows = results["torch"].get("compiled", []) if results["torch"] else []
    return [row for row in rows if all(row[k] == v for k, v in wanted.items())]


def compiled_ns(
    results: Json, method: str, metrics: str | None, isa: str, length: int
) -> float | None:
    found = compiled(results, method=method, metrics=metrics, isa=isa, length=length)
    return found[0]["cpu_ns_per_token"] if found else None


def compared_sets(results: Json) -> list[str]:
    """Instruction sets of the kernels in which compiled torch was timed too."""
    return [isa for isa in instruction_sets(results) if compiled(results, isa=isa)]


def number(ns: float | None, digits: int) -> str:
    return "-" if ns is None else f"{ns:.{digits}f}"


def ratio(slow: float | None, fast: float | None) -> str:
    return f"{slow / fast:.1f} x" if slow and fast else "-"


def headline_table(results: Json) -> str:
    sets = instruction_sets(results)
    header = [f"{HEADLINE}, ns per token; torch with verl's metrics", "eager torch"]
    for isa in sets:
        torch = f"compiled, {VECTORS.get(isa, isa)}"
        header += [torch, isa, f"eager / {isa}", f"compiled / {isa}"]
    cells = []
    for eager in torch_rows(results, tokens=results["tokens"]):
        length, eager_ns = eager["length"], eager["cpu_ns_per_token"]
        row = [f"T = {length:,}", number(eager_ns, 1)]
        for isa in sets:
            torch_ns = compiled_ns(results, HEADLINE, "verl", isa, length)
            kernel_ns = ours(results, HEADLINE, isa, length)
            row += [number(torch_ns, 1), number(kernel_ns, 2)]
            row += [ratio(eager_ns, kernel_ns), ratio(torch_ns, kernel_ns)]
        cells.append(row)
    return table(header, cells)


def methods(results: Json, **wanted: object) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in compiled(results, **wanted)))


def method_table(results: Json, length: int) -> str:
    """The same metrics are none at all where a method has none."""
    sets = compared_sets(results)
    header = [f"T = {length:,}, ns per token"]
    for isa in sets:
        torch = f"compiled, {VECTORS[isa]}"
        header += [f"{torch}, verl's metrics", f"{torch}, same metrics"]
        header += [isa, f"verl's metrics / {isa}", f"same metrics / {isa}"]
    cells = []
    for method in methods(results):
        row = [method]
        for isa in sets:
            verl, same, none = (
                compiled_ns(results, method, metrics, isa, length)
                for metrics in ("verl", "same", None)
            )
            same = same or none
            kernel_ns = ours(results, method, isa, length)
            row += [number(verl, 1), number(same, 1), number(kernel_ns, 2)]
            row += [ratio(verl, kernel_ns), ratio(same, kernel_ns)]
        cells.append(row)
    return table(header, cells)


def tables(results: Json) -> list[str]:
    if not results["torch"]:
        return ["Skipped: no `.venv-torch`; `.ci/setup torch` makes it (5 GB)."]
    lengths = METHOD_LENGTHS if compared_sets(results) else ()
    return [headline_table(results), *(method_table(results, length) for length in lengths)]


def ratios(results: Json, metrics: str | None, isa: str) -> Iterator[float]:
    for method in methods(results, metrics=metrics):
        slow = compiled_ns(results, method, metrics, isa, LONG)
        fast = ours(results, method, isa, LONG)
        if slow and fast:
            yield slow / fast


def targets(results: Json) -> list[list[str]]:
    """One line for each instruction set and kind, with the least and the greatest ratio."""
    target = f">= {COMPILED_TARGET:.0f} x"
    if not compared_sets(results):
        return [[f"every method, T = {LONG:,}, against compiled torch", target, "skipped", "-"]]
    cells = []
    for isa in compared_sets(results):
        for metrics, what in KINDS.items():
            found = list(ratios(results, metrics, isa))
            if not found:
                continue
            cells.append(
                [
                    f"{what}, {isa}, T = {LONG:,}, against compiled torch with {VECTORS[isa]}",
                    target,
                    f"{min(found):.1f} to {max(found):.1f} x",
                    verdict(min(found) >= COMPILED_TARGET),
                ]
            )
    return cells
