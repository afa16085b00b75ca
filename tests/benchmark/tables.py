"""The results of bench.py as Markdown."""

from __future__ import annotations

import calls_tables
import steps_tables
import torch_tables
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

# Nanoseconds per token, by instruction set.
KERNEL_TARGETS = {"v3": 3.0, "v4": 2.3}
TORCH_TARGET = 40.0
# Targets as shares of an echo's time: 2 cores, 8 cores.
ECHO_TARGETS = {2: 0.75, 8: 0.85}
IN_PROCESS_TARGET = 8.0
SMALL_BATCH_TARGETS = (1.15, 1.3)  # of the first shapes
SCALING_TARGET = 1.2
# The rate of two threads against one's, from 64 x 512 on, and the time of that batch.
THREADS_TARGET = 1.8
SMALL_KERNEL_TARGET = 60.0
# Against the stream: arrays in shared memory from the start, and others.
SHARED_TARGETS = {"allocated": 4.0, "shared_memory": 1.8}
SHARING_TARGET = 0.85


def length_table(results: Json, isa: str) -> str:
    """ns per token, methods by lengths, of the batches of a million tokens."""
    rows = kernel(results, isa=isa, tokens=results["tokens"])
    lengths = sorted({row["length"] for row in rows})
    header = ["method, ns per token", *[f"T = {length:,}" for length in lengths]]
    header += ["bytes / token", "of memcpy"]
    cells = []
    for method in dict.fromkeys(row["method"] for row in rows):
        of_method = {row["length"]: row for row in rows if row["method"] == method}
        longest = of_method[lengths[-1]]
        cells.append(
            [
                method,
                *[f"{of_method[length]['ns_per_token']:.2f}" for length in lengths],
                f"{longest['bytes_per_token']:.0f}",
                f"{100 * longest['of_memcpy']:.1f} %",
            ]
        )
    return table(header, cells)


def scaling_rows(results: Json, isa: str) -> list[Json]:
    rows = kernel(results, method=HEADLINE, isa=isa, length=LONG)
    return sorted(rows, key=lambda row: int(row["tokens"]))


def scaling_table(results: Json) -> str:
    sets = instruction_sets(results)
    tokens = [row["tokens"] for row in scaling_rows(results, sets[0])]
    header = [f"{HEADLINE}, ns per token, T = {LONG:,}", *[f"{n:,} tokens" for n in tokens]]
    cells = [
        [isa, *[f"{row['ns_per_token']:.2f}" for row in scaling_rows(results, isa)]] for isa in sets
    ]
    return table(header, cells)


def wire_table(results: Json) -> str:
    header = [
        "Correct over a Unix socket",
        "transport",
        "tokens",
        "p50 ms",
        "token_tis p50 ms",
        "echo p50 ms",
    ]
    header += ["GB/s", "echo GB/s", "echo / Correct"]
    cells = [
        [
            f"{row['sequences']:,} x {row['length']:,}",
            row["transport"],
            f"{row['tokens']:,}",
            f"{1e3 * row['correct_p50_seconds']:.2f}",
            f"{1e3 * row['token_tis_p50_seconds']:.2f}",
            f"{1e3 * row['echo_p50_seconds']:.2f}",
            f"{row['correct_GB_per_s']:.2f}",
            f"{row['echo_GB_per_s']:.2f}",
            f"{row['echo_min_seconds'] / row['correct_min_seconds']:.2f}",
        ]
        for row in results["wire"]["rows"]
    ]
    return table(header, cells)


def shared_table(results: Json) -> str:
    header = ["method, least ms", "stream", "shared memory", "ratio", "client.empty()", "ratio"]
    cells = []
    for row in results["wire"]["shared"]:
        stream, shared, allocated = (
            row[f"{name}_seconds"] for name in ("stream", "shared_memory", "allocated")
        )
        cells.append(
            [
                f"{row['method']}, {row['tokens']:,} tokens",
                f"{1e3 * stream:.1f}",
                f"{1e3 * shared:.1f}",
                f"{stream / shared:.1f} x",
                f"{1e3 * allocated:.1f}",
                f"{stream / allocated:.1f} x",
            ]
        )
    return table(header, cells)


def tls_table(results: Json) -> str:
    header = ["Correct over loopback TCP", "transport", "plain p50 ms", "TLS p50 ms", "TLS / plain"]
    header += ["plain GB/s", "TLS GB/s", "least times: TLS / plain"]
    cells = [
        [
            f"{row['sequences']:,} x {row['length']:,}",
            row["transport"],
            f"{1e3 * row['tcp_p50_seconds']:.2f}",
            f"{1e3 * row['tls_p50_seconds']:.2f}",
            f"{row['tls_p50_seconds'] / row['tcp_p50_seconds']:.2f}",
            f"{1e-9 * row['bytes'] / row['tcp_min_seconds']:.2f}",
            f"{1e-9 * row['bytes'] / row['tls_min_seconds']:.2f}",
            f"{row['tls_min_seconds'] / row['tcp_min_seconds']:.2f}",
        ]
        for row in results["rows"]
    ]
    return table(header, cells)


def clients_table(results: Json) -> str:
    header = ["p50 in ms (GB/s)", "Python", "C++", "Go", "Go / C++", "allocations, bytes in Go"]
    cells = []
    for row in results["clients"]:
        times = [row[f"{name}_seconds"] for name in ("python", "cpp", "go")]
        cells.append(
            [
                f"{row['sequences']:,} x {row['length']:,}, {row['transport']}",
                *(f"{1e3 * t:.2f} ({1e-9 * row['bytes'] / t:.2f})" for t in times),
                f"{times[1] / times[2]:.2f}",
                f"{row['go_allocations']:.0f}, {row['go_allocated_bytes']:,.0f}",
            ]
        )
    return table(header, cells)


def load_tables(results: Json) -> list[str]:
    load = results["load"]
    memory = load["memory"]
    best = max(row["tokens_per_second"] for row in load["sharing"])
    mib = 2.0**20
    return [
        table(
            ["stream, C++ client, p50", *[f"{row['tokens']:,} tokens" for row in load["sizes"]]],
            [["ns per token", *[f"{row['ns_per_token']:.2f}" for row in load["sizes"]]]],
        ),
        table(
            ["clients at once, 512 x 1,024", *[str(row["clients"]) for row in load["sharing"]]],
            [
                [
                    "million tokens per second",
                    *[f"{1e-6 * row['tokens_per_second']:.0f}" for row in load["sharing"]],
                ],
                [
                    "of the best",
                    *[f"{row['tokens_per_second'] / best:.2f}" for row in load["sharing"]],
                ],
            ],
        ),
        f"Memory: {memory['requests']} batches of 1,024 x 4,096 by {memory['clients']} clients, "
        f"{memory['bytes_in_flight'] / mib:.0f} MiB in flight: peak "
        f"{memory['peak_bytes'] / mib:.0f} MiB.",
    ]


def load_targets(results: Json) -> list[list[str]]:
    load = results["load"]
    memory = load["memory"]
    costs = [row["ns_per_token"] for row in load["sizes"]]
    spread = max(costs) / min(costs)
    rates = {row["clients"]: row["tokens_per_second"] for row in load["sharing"]}
    cores = results["machine"]["cores"]
    shared = min(rate for clients, rate in rates.items() if clients >= cores)
    share = shared / max(rates.values())
    mib = 2.0**20
    return [
        [
            "server memory under 4 clients, MiB (1.3 x the bytes in flight + 200)",
            f"<= {memory['allowed_bytes'] / mib:.0f}",
            f"{memory['peak_bytes'] / mib:.0f}",
            verdict(memory["peak_bytes"] <= memory["allowed_bytes"]),
        ],
        [
            "its peak in the second half of the run / in the first",
            "flat",
            f"{memory['growth']:.2f}",
            verdict(memory["growth"] <= 1.05),
        ],
        [
            "stream, cost per token from 1e5 to 1e8 tokens, dearest / cheapest",
            f"<= {SCALING_TARGET}",
            f"{spread:.2f}",
            verdict(spread <= SCALING_TARGET),
        ],
        [
            f"{cores} clients and more, throughput / the best",
            f">= {SHARING_TARGET}",
            f"{share:.2f}",
            verdict(share >= SHARING_TARGET),
        ],
    ]


def shared_targets(results: Json) -> list[list[str]]:
    cells = []
    for row in results["wire"]["shared"]:
        for name, least in SHARED_TARGETS.items():
            ratio = row["stream_seconds"] / row[f"{name}_seconds"]
            arrays = "client.empty()" if name == "allocated" else "any arrays"
            cells.append(
                [
                    f"shared memory, {row['method']}, {arrays}, against the stream",
                    f">= {least} x",
                    f"{ratio:.1f} x",
                    verdict(ratio >= least),
                ]
            )
    return cells


def kernel_targets(results: Json) -> list[list[str]]:
    cells = []
    for isa in instruction_sets(results):
        rows = kernel(results, method=HEADLINE, isa=isa, tokens=results["tokens"])
        worst = max(row["ns_per_token"] for row in rows if row["length"] >= LONG)
        if isa in KERNEL_TARGETS:
            limit = KERNEL_TARGETS[isa]
            cells.append(
                [
                    f"kernel, {isa}, T >= {LONG}, ns per token",
                    f"<= {limit}",
                    f"{worst:.2f}",
                    verdict(worst <= limit),
                ]
            )
        ratios = [
            eager["cpu_ns_per_token"] / row["ns_per_token"]
            for eager in torch_rows(results, tokens=results["tokens"])
            for row in rows
            if row["length"] == eager["length"] and row["length"] >= LONG
        ]
        measured = f"{min(ratios):.1f} x" if ratios else "skipped"
        cells.append(
            [
                f"kernel, {isa}, T >= {LONG}, against eager torch on one core",
                f">= {TORCH_TARGET:.0f} x",
                measured,
                verdict(min(ratios) >= TORCH_TARGET) if ratios else "-",
            ]
        )
        times = [row["ns_per_token"] for row in scaling_rows(results, isa)]
        largest = scaling_rows(results, isa)[-1]["tokens"]
        spread = max(times) / min(times)
        cells.append(
            [
                f"kernel, {isa}, cost per token from 1e5 to {largest:.1e} tokens, dearest / cheapest",
                f"<= {SCALING_TARGET}",
                f"{spread:.2f}",
                verdict(spread <= SCALING_TARGET),
            ]
        )
    return cells


def thread_targets(results: Json) -> list[list[str]]:
    cells = []
    for isa in instruction_sets(results):
        for length in (512, LONG):
            one, two = (
                kernel(results, method=method, isa=isa, length=length)
                for method in (HEADLINE, f"{HEADLINE}, 2 threads")
            )
            tokens = two[0]["tokens"]
            alone = next(row for row in one if row["tokens"] == tokens)
            ratio = alone["ns_per_token"] / two[0]["ns_per_token"]
            cells.append(
                [
                    f"kernel, {isa}, {tokens // length:,} x {length:,}, two threads against one",
                    f">= {THREADS_TARGET} x",
                    f"{ratio:.2f} x",
                    verdict(ratio >= THREADS_TARGET),
                ]
            )
            if length == LONG:
                continue
            us = two[0]["ns_per_token"] * tokens / 1e3
            cells.append(
                [
                    f"kernel, {isa}, {tokens // length:,} x {length:,} on two threads, us with metrics",
                    f"<= {SMALL_KERNEL_TARGET:.0f}",
                    f"{us:.0f}",
                    verdict(us <= SMALL_KERNEL_TARGET),
                ]
            )
    return cells


def wire_targets(results: Json) -> list[list[str]]:
    rows = results["wire"]["rows"]
    large = rows[-1]
    cores = results["machine"]["cores"]
    share = ECHO_TARGETS[8 if cores >= 8 else 2]
    echo = large["echo_min_seconds"] / large["correct_min_seconds"]
    cells = [
        [
            f"remote call, {large['tokens']:,} tokens, echo / Correct on {cores} cores",
            f">= {share}",
            f"{echo:.2f}",
            verdict(echo >= share),
        ]
    ]
    ours = 1e9 * large["correct_min_seconds"] / large["tokens"]
    for threads in sorted({1, cores}):
        eager = torch_rows(results, tokens=large["tokens"], threads=threads)
        ratio = eager[0]["wall_ns_per_token"] / ours if eager else 0.0
        cells.append(
            [
                f"remote call, {large['tokens']:,} tokens, against eager torch in process on {threads} thread{'s' * (threads > 1)}",
                f">= {IN_PROCESS_TARGET:.0f} x",
                f"{ratio:.1f} x" if eager else "skipped",
                verdict(ratio >= IN_PROCESS_TARGET) if eager else "-",
            ]
        )
    for row, target in zip(rows, SMALL_BATCH_TARGETS, strict=False):
        p50 = row["token_tis_p50_seconds"] / row["echo_p50_seconds"]
        cells.append(
            [
                f"{row['sequences']} x {row['length']:,}, token_tis, p50 of Correct / p50 of echo",
                f"<= {target}",
                f"{p50:.2f}",
                verdict(p50 <= target),
            ]
        )
    return cells


def agreement_line(results: Json) -> str:
    found = results["wire"]["agreement"]
    if found is None:
        return "Whether eager torch and the server agree was not checked: no torch."
    return (
        f"Eager torch and the server's verl dialect agree on {found['metrics']} metrics of a batch within "
        f"{found['worst_relative_difference']:.1e} (worst: `{found['worst_metric']}`; torch adds in float32), and keep "
        f"{found['tokens_kept_differently'] or 'no'} tokens differently."
    )


def markdown(results: Json) -> str:
    machine = results["machine"]
    torch = f"torch {results['torch']['torch']}" if results["torch"] else "without torch"
    parts = [
        f"{results['date']}, {machine['cpu']}, {machine['cores']} cores, {', '.join(instruction_sets(results))}; "
        f"commit {results['commit']}; {torch}. memcpy {results['memcpy_GB_per_s']:.1f} GB/s, reading and writing "
        f"counted. Load average at the start {machine['load']:.1f}.",
        "### Targets",
        table(
            ["what", "target", "measured", "verdict"],
            calls_tables.targets(results)
            + steps_tables.targets(results)
            + kernel_targets(results)
            + torch_tables.targets(results)
            + thread_targets(results)
            + wire_targets(results)
            + shared_targets(results)
            + load_targets(results),
        ),
    ]
    parts += ["### What a trainer waits for", *calls_tables.tables(results)]
    parts += ["### A step", steps_tables.steps_table(results)]
    for isa in instruction_sets(results):
        parts += [f"### Kernels, {isa}", length_table(results, isa)]
    parts += ["### Size of the batch", scaling_table(results), "### Torch"]
    parts += torch_tables.tables(results)
    parts += [agreement_line(results), "### Over the wire", wire_table(results)]
    parts += ["### Shared memory", shared_table(results)]
    parts += ["### TLS, token_tis", tls_table(results["tls"])]
    parts += ["### Clients, token_tis", clients_table(results)]
    parts += ["### Under load", *load_tables(results)]
    return "\n\n".join(parts) + "\n"
