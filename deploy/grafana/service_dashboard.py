"""The dashboard of how the servers serve."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.models import dashboard
from panels import Panel, Query, Row, Scale, page, variable

LABELS = 'job=~"$job",instance=~"$instance"'
SELECTED = f"{{{LABELS}}}"
WINDOW = "$__rate_interval"
# Selects RPCs that correct; the others return information.
CORRECTING = f'{{{LABELS},method=~"Correct|CorrectStream"}}'


def gauge(name: str) -> str:
    return f"counterweight_{name}{SELECTED}"


def rate(name: str, by: Sequence[str] = (), selected: str = SELECTED) -> str:
    labels = f" by ({', '.join(by)}) " if by else ""
    return f"sum{labels}(rate(counterweight_{name}{selected}[{WINDOW}]))"


def quantile(q: float, histogram: str, by: str = "") -> str:
    labels = ("le", by) if by else ("le",)
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', labels)})"


STATE = Row(
    "Servers",
    [
        Panel(
            "Ready",
            "Scraped servers with the health status SERVING.",
            [
                Query(f"sum({gauge('ready')})", "ready"),
                Query(f"count({gauge('ready')})", "scraped"),
            ],
            kind="stat",
            width=4,
        ),
        Panel(
            "What runs",
            "Version, backend and instruction set.",
            [
                Query(
                    "count by (version, revision, backend, instruction_set) "
                    f"({gauge('build_info')})",
                    "{{version}} {{revision}} {{backend}} {{instruction_set}}",
                )
            ],
            unit="none",
            kind="stat",
            width=10,
        ),
        Panel(
            "Up since",
            "The server that started last, if several are selected.",
            [Query(f"1000 * max(process_start_time_seconds{SELECTED})")],
            unit="dateTimeFromNow",
            kind="stat",
            width=5,
        ),
        Panel(
            "Certificate ends",
            "The one that ends first, of the servers with --tls_certificate; none has data without. Put the "
            "renewed one in its place: servers take it without a restart.",
            [
                Query(
                    f"1000 * min(counterweight_tls_certificate_expiry_seconds{SELECTED})",
                )
            ],
            unit="dateTimeFromNow",
            kind="stat",
            width=5,
        ),
    ],
)

RATE = Row(
    "Rate and errors",
    [
        Panel(
            "Requests, by method",
            "Requests answered per second, refused ones included.",
            [Query(rate("requests_total", ["method"]), "{{method}}")],
            unit="reqps",
            minimum=0,
        ),
        Panel(
            "Requests, by code",
            "RESOURCE_EXHAUSTED: no room, clients try again. INVALID_ARGUMENT: the trainer sends what cannot "
            "be corrected. INTERNAL: look into the server's log.",
            [Query(rate("requests_total", ["code"]), "{{code}}")],
            unit="reqps",
            minimum=0,
        ),
        Panel(
            "Share of batches that were not corrected",
            "Of the requests to correct a batch, whatever the reason.",
            [
                Query(
                    f"1 - {rate('request_seconds_count')} / "
                    f"{rate('requests_total', selected=CORRECTING)}",
                    "not corrected",
                )
            ],
            unit="percentunit",
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Tokens",
            "Tokens that count, of successful requests, per second.",
            [Query(rate("tokens_total", ["instance"]), "{{instance}}")],
            unit="cps",
            minimum=0,
        ),
        Panel(
            "Bytes",
            "Bytes of requests and answers per second. Tensors in shared memory are not among them.",
            [
                Query(rate("request_bytes_total"), "received"),
                Query(rate("response_bytes_total"), "sent"),
            ],
            unit="Bps",
            minimum=0,
        ),
        Panel(
            "Requests refused for a number that is not finite",
            "By the policy REJECT, per second: the engine or the trainer has a bug.",
            [Query(rate("non_finite_rejections_total", ["instance"]), "{{instance}}")],
            unit="reqps",
            minimum=0,
        ),
    ],
)

LATENCY = Row(
    "Latency of successful batches",
    [
        Panel(
            "Quantiles",
            "From a batch's message or header received to its answer handed to the transport.",
            [
                Query(quantile(q, "request_seconds"), name)
                for q, name in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))
            ],
            unit="s",
            scale=Scale.LOG,
        ),
        Panel(
            "99 % of each stage",
            "queue: no worker thread was free. receive: the network, streams only. compute: the kernels.",
            [Query(quantile(0.99, "request_stage_seconds", "stage"), "{{stage}}")],
            unit="s",
            scale=Scale.LOG,
        ),
        Panel(
            "Mean time, by stage",
            "Stacked: the sum is the mean time of a batch.",
            [
                Query(
                    f"{rate('request_stage_seconds_sum', ['stage'])} / on () group_left "
                    f"{rate('request_seconds_count')}",
                    "{{stage}}",
                )
            ],
            unit="s",
            minimum=0,
            stacked=True,
        ),
    ],
)

ADMISSION = Row(
    "Admission",
    [
        Panel(
            "Admitted bytes, of their limit",
            "Input, scratch, output and shared memory. Near 1 batches wait: raise --max_bytes_in_flight or add "
            "servers.",
            [
                Query(
                    f"{gauge('admitted_bytes')} / {gauge('admitted_bytes_limit')}",
                    "{{instance}}",
                )
            ],
            unit="percentunit",
            minimum=0,
            maximum=1,
        ),
        Panel(
            "Batches",
            "Admitted, waiting for admission, and still arriving.",
            [
                Query(f"sum({gauge('requests_in_flight')})", "in flight"),
                Query(f"sum({gauge('requests_queued')})", "queued"),
                Query(f"sum({gauge('arriving_requests')})", "arriving"),
                Query(f"sum({gauge('tasks_waiting')})", "tasks waiting for a thread"),
            ],
            minimum=0,
        ),
        Panel(
            "Connections",
            "Open ones, and those refused per second because there were too many.",
            [
                Query(f"sum({gauge('connections')})", "open"),
                Query(rate("connections_refused_total"), "refused per second"),
            ],
            minimum=0,
        ),
    ],
)

MEMORY = Row(
    "Memory",
    [
        Panel(
            "Resident memory",
            "Stays below 1.3 x --max_bytes_in_flight + 512 MiB.",
            [Query(f"process_resident_memory_bytes{SELECTED}", "{{instance}}")],
            unit="bytes",
            minimum=0,
        ),
        Panel(
            "Batches' memory",
            "What admission counts for batches in flight, what waiting ones hold, and the staging memory "
            "of streams.",
            [
                Query(f"sum({gauge('bytes_in_flight')})", "in flight"),
                Query(f"sum({gauge('waiting_bytes')})", "waiting"),
                Query(f"sum({gauge('staging_used_bytes')})", "staging, used"),
                Query(f"sum({gauge('staging_free_bytes')})", "staging, kept for reuse"),
            ],
            unit="bytes",
            minimum=0,
        ),
        Panel(
            "Shared memory",
            "Where --shared_memory_socket is set: what clients share, and what of it is admitted.",
            [
                Query(f"sum({gauge('shared_memory_bytes')})", "shared"),
                Query(f"sum({gauge('shared_memory_admitted_bytes')})", "admitted"),
                Query(f"sum({gauge('shared_memory_device_bytes')})", "on devices"),
            ],
            unit="bytes",
            minimum=0,
        ),
    ],
)

DEVICES = Row(
    "Devices and process",
    [
        Panel(
            "Load of devices",
            "Share of the time in which kernels ran. Servers without devices are shown with 0.",
            [
                Query(
                    f"{rate('device_seconds_total', ['instance', 'device'])} "
                    f"or on (instance) 0 * {gauge('ready')}",
                    "{{instance}} {{device}}",
                )
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Device errors",
            "Batches in five minutes that failed because CUDA reported an error. Servers without devices are shown "
            "with 0.",
            [
                Query(
                    "sum by (instance, device) "
                    f"(increase(counterweight_device_errors_total{SELECTED}[5m])) "
                    f"or on (instance) 0 * {gauge('ready')}",
                    "{{instance}} {{device}}",
                )
            ],
            minimum=0,
        ),
        Panel(
            "CPU",
            "Cores that the process keeps busy.",
            [Query(f"rate(process_cpu_seconds_total{SELECTED}[{WINDOW}])", "{{instance}}")],
            minimum=0,
        ),
        Panel(
            "Open files",
            "Of the most that the process may open.",
            [
                Query(
                    f"process_open_fds{SELECTED} / process_max_fds{SELECTED}",
                    "{{instance}}",
                )
            ],
            unit="percentunit",
            minimum=0,
        ),
        Panel(
            "Errors of shared memory",
            "Connections and registrations that were refused, per second.",
            [Query(rate("shared_memory_errors_total", ["instance"]), "{{instance}}")],
            unit="cps",
            minimum=0,
        ),
        Panel(
            "Log lines dropped",
            "Per second, because stderr was not read.",
            [Query(rate("log_lines_dropped_total", ["instance"]), "{{instance}}")],
            unit="cps",
            minimum=0,
        ),
    ],
)


def service_dashboard() -> dashboard.Dashboard:
    return page(
        "counterweight-service",
        "Counterweight: service",
        "How the servers serve: rate, errors, latency by stage, admission, memory and devices.",
        [
            variable("job", "Job", "label_values(counterweight_build_info, job)"),
            variable(
                "instance",
                "Server",
                'label_values(counterweight_build_info{job=~"$job"}, instance)',
            ),
        ],
        [STATE, RATE, LATENCY, ADMISSION, MEMORY, DEVICES],
    )
