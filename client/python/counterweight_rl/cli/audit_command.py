"""The command ``counterweight audit``."""

from __future__ import annotations

import datetime
import functools
import pathlib
import re
import sys

import click

from counterweight_rl.audit import engines, folder, sources, work
from counterweight_rl.audit.part import Part
from counterweight_rl.audit.report import of_part
from counterweight_rl.audit.responses import opened
from counterweight_rl.audit.rows import SourceError
from counterweight_rl.audit.spec import KEYS, LOCAL, Spec
from counterweight_rl.cli import audit, audit_html, display
from counterweight_rl.cli.connection import Connection, connected
from counterweight_rl.cli.method import read_methods
from counterweight_rl.cli.problems import FailureError, InputError

_FILE = click.Path(path_type=pathlib.Path)
_OF_RAY = ("ray", "pandas", "fsspec")
_AGE = re.compile(r"(\d+)([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400}


def read_since(text: str | None) -> float | None:
    """Reads ``--since``: seconds since 1970.

    Raises:
        InputError: It is neither a time nor an age.
    """
    if text is None:
        return None
    now = datetime.datetime.now(datetime.timezone.utc)
    age = _AGE.fullmatch(text)
    if age is not None:
        return now.timestamp() - int(age[1]) * _SECONDS[age[2]]
    try:
        read = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"--since must be a time such as 2026-11-29 or 2026-11-29T08:00, or an age such as "
            f"24h; got {text!r}"
        ) from None
    return (read if read.tzinfo else read.astimezone()).timestamp()


def read_responses(place: pathlib.Path | None) -> str | None:
    """Reads ``--responses``.

    Raises:
        InputError: There are none.
    """
    if place is None:
        return None
    try:
        files = opened(str(place)).files
    except SourceError as error:
        raise InputError(f"--responses: {error}") from error
    if not files:
        raise InputError(
            f"--responses: {place} has no .json or .jsonl file with vLLM's choices[].logprobs or "
            "SGLang's meta_info.output_token_logprobs"
        )
    return str(place)


def read_spec(
    methods: str | None,
    by: str,
    columns: tuple[str, ...],
    since: str | None,
    responses: pathlib.Path | None,
    doctor: bool,
    connection: Connection,
) -> Spec:
    """Reads the flags of those names.

    Raises:
        InputError: One is wrong.
    """
    named: dict[str, str] = {}
    for each in columns:
        role, _, name = each.partition("=")
        if not role or not name:
            raise InputError(f"--columns must be ROLE=NAME; got {each!r}")
        named[role] = name
    keys = tuple(part.strip() for part in by.split(",") if part.strip())
    try:
        return Spec(
            methods={} if methods is None else read_methods(methods),
            by=keys,
            columns=named,
            since=read_since(since),
            responses=read_responses(responses),
            doctor=doctor,
            # Units have any size.
            target=LOCAL if connection.target == "local:" else connection.target,
            timeout=connection.timeout,
            token_file=connection.token_file,
            tls=connection.tls,
        )
    except ValueError as error:
        raise InputError(f"--{error}") from error


@click.command("audit")
@click.argument("place", metavar="DIR", type=_FILE)
@click.option(
    "--methods",
    help="Presets to try on the rows, as for counterweight compare.",
)
@click.option(
    "--by", default=",".join(KEYS), show_default=True, help="Properties to show drift by."
)
@click.option(
    "--columns", multiple=True, help="ROLE=NAME for a column of another name; repeatable."
)
@click.option(
    "--responses",
    type=_FILE,
    help="Responses of vLLM or SGLang as JSON, for files with the trainer's log-probs alone.",
)
@click.option("--since", help="Time, or age such as 24h: earlier rows are left out.")
@click.option(
    "--state", type=_FILE, help="File that keeps the sums, so that the next audit reads new files."
)
@click.option("--doctor/--no-doctor", default=True, help="Whether to look for faults.")
@click.option(
    "--processes", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes."
)
@click.option("--on", type=click.Choice(["ray"]), help="Cluster that computes instead.")
@click.option("--html", type=_FILE, help="File for a report with pictures.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@connected
def command(
    connection: Connection,
    place: pathlib.Path,
    methods: str | None,
    by: str,
    columns: tuple[str, ...],
    responses: pathlib.Path | None,
    since: str | None,
    state: pathlib.Path | None,
    doctor: bool,
    processes: int,
    on: str | None,
    html: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Show the drift of the recorded batches of a folder, and what methods would have done.

    DIR has files of Client(record=...), .npz and Parquet files as for counterweight correct,
    NeMo-RL's train_data_step*.jsonl or prime-rl's token_exports. Numbers do not depend on how rows
    lie in files, nor on the number of processes; the digest of equal rows is equal.

    Exit codes: 0 all was audited; 1 some was left out, which is named; 2 nothing could be audited.
    """
    spec = read_spec(methods, by, columns, since, responses, doctor, connection)
    if on is not None and processes != 1:
        raise InputError(f"--on={on} and --processes exclude each other")
    if state is not None and since is not None:
        raise InputError("--since and --state exclude each other: the state's sums have no times")
    part = _audit(place, spec, state, processes, on)
    found = of_part(part, spec)
    if html is not None:
        html.write_text(audit_html.page(str(place), found))
    if as_json:
        print(audit.report_json(found))
    else:
        audit.show(display.console(), str(place), found)
        if html is not None:
            display.console().print(f"wrote {html}", soft_wrap=True)
    if found.whole is None:
        sys.exit(2)
    if not found.is_complete:
        sys.exit(1)


def _audit(
    place: pathlib.Path, spec: Spec, state: pathlib.Path | None, processes: int, on: str | None
) -> Part:
    if not place.exists():
        raise InputError(f"{place}: there is no such file or folder")
    responses = set() if spec.responses is None else opened(spec.responses).files
    paths = [path for path in sources.files(place) if path.resolve() not in responses]
    if not paths:
        raise InputError(f"{place}: has no .parquet, .jsonl or .npz file")
    engine = functools.partial(engines.in_processes, processes=processes)
    try:
        before = None if state is None else folder.read_state(state, spec)
        paths = folder.new_files(paths, before)
        units = [unit for path in paths for unit in sources.units_of(path)]
        total = max(sum(unit.num_bytes for unit in units), 1)
        with display.bar() as bar:
            part = folder.audit(
                units,
                spec,
                engines.on_ray if on == "ray" else engine,
                lambda done: bar.count(done, total, "auditing"),
            )
    except ValueError as error:
        raise InputError(f"{error}" if state is None else f"{state}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name not in _OF_RAY:
            raise
        raise FailureError("--on=ray needs Ray Data: pip install 'ray[data]'") from error
    if before is not None:
        part.add(before, work.client(spec))
    if state is not None:
        folder.write_state(state, part)
    return part
