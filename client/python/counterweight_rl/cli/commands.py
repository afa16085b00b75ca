"""Reads the command line."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import click

from counterweight_rl._version import __version__
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.cli import (
    audit_command,
    batch_doctor,
    batch_file,
    compare,
    demo,
    display,
    doctor,
    listing,
    serve,
    suggest,
)
from counterweight_rl.cli.connection import Connection, connected
from counterweight_rl.cli.method import read_method, read_methods
from counterweight_rl.cli.problems import FailureError, InputError, invalid, needs_extra
from counterweight_rl.cli.programs import find_server
from counterweight_rl.errors import CounterweightError, InvalidRequestError

_INTERRUPTED = 130
_FILE = click.Path(path_type=pathlib.Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="counterweight")
@click.pass_context
def counterweight(context: click.Context) -> None:
    """Correct the off-policy drift of RL batches, in this process or by a server.

    Exit codes: 0 done, 1 failed, 2 wrong command line or file.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@counterweight.command("correct")
@click.argument("file", type=_FILE)
@click.option("--method", "-m", help="Named method; see counterweight methods.")
@click.option("--parameter", "-p", multiple=True, help="NAME=NUMBER of the method; repeatable.")
@click.option(
    "--dialect",
    help="System of --block: verl, trl, skyrl, openrlhf, slime, miles, nemo_rl, ms_swift, "
    "prime_rl, areal, roll, tinker.",
)
@click.option("--block", type=_FILE, help="YAML or JSON file with the block of --dialect.")
@click.option("--release", help="Release of the dialect's system whose numbers are wanted.")
@click.option("--output", "-o", type=_FILE, help=".npz or Parquet file for the results.")
@click.option("--run", "run_label", help="Label of the drift metrics in a server's Prometheus.")
@click.option(
    "--policy-version",
    type=int,
    help="Version of the policy being trained; needed for the file's policy_versions.",
)
@click.option(
    "--non-finite",
    type=click.Choice([policy.value for policy in NonFinitePolicy]),
    default="reject",
    show_default=True,
    help="Policy for NaN and infinities.",
)
@click.option("--transport", help="unary, stream or shared_memory; for a server.")
@click.option("--all", "all_metrics", is_flag=True, help="Print every metric.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@connected
def _correct(
    connection: Connection,
    file: pathlib.Path,
    method: str | None,
    parameter: tuple[str, ...],
    dialect: str | None,
    block: pathlib.Path | None,
    release: str | None,
    output: pathlib.Path | None,
    run_label: str | None,
    policy_version: int | None,
    non_finite: str,
    transport: str | None,
    all_metrics: bool,
    as_json: bool,
) -> None:
    """Correct the batch of a .npz or Parquet FILE.

    A .npz file has the arrays rollout_log_probs, old_log_probs, current_log_probs, ref_log_probs,
    advantages and response_mask, all [B, T], or all one-dimensional beside sequence_lengths. A
    Parquet file has one row for each sequence, and columns of lists of these names. Advantages may
    be one per sequence. With --policy-version drift is also shown by staleness, if the file has
    policy_versions (the version that sampled each token, -1 where unknown) or version_spans. A
    --dialect also gets group_ids.
    """
    asked = read_method(method, parameter, dialect, block, release)
    if output is not None:
        batch_file.check_kind(output, "results go into")
    settings: dict[str, Any] = {} if transport is None else {"transport": transport}
    with display.bar() as bar, connection.open(**settings) as client:
        bar.stage(f"reading {file.name}")
        batch = batch_file.read(file)
        try:
            result = client.correct(
                method=asked,
                run=run_label,
                policy_version=policy_version,
                non_finite=non_finite,
                progress=bar.sent("correcting"),
                **batch.arguments(
                    has_version=policy_version is not None, has_groups=dialect is not None
                ),
            )
        except (ValueError, TypeError) as error:
            raise invalid(error, file) from error
        if output is not None:
            bar.stage(f"writing {output.name}")
            batch_file.write(output, batch, result)
    if as_json:
        print(display.result_json(result))
        return
    where = display.console()
    compute = 1e3 * result.timing.compute_seconds
    title = f"{file}: {method or dialect}, computed by {result.backend} in {compute:.3g} ms"
    display.print_table(where, title, display.drift_table(result, all_metrics=all_metrics))
    display.print_warnings(where, {"": result.warnings})
    if output is not None:
        where.print(f"wrote {output}", soft_wrap=True)


@counterweight.command("compare")
@click.argument("file", type=_FILE)
@click.option(
    "--methods",
    required=True,
    help="Names with commas between them; NAME:PARAMETER=NUMBER for another than the default.",
)
@click.option("--picture", type=_FILE, help="File for a picture: .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@connected
def _compare(
    connection: Connection,
    file: pathlib.Path,
    methods: str,
    picture: pathlib.Path | None,
    as_json: bool,
) -> None:
    """Show what several methods would do to the batch of a FILE.

    --methods "token_tis,geo_rs_token_tis:keep_lower=0.95:keep_upper=1.05" compares a preset with
    another one whose interval is not the default.
    """
    asked = read_methods(methods)
    if picture is not None:
        if picture.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise InputError(f"--picture {picture}: must be a .png, .svg or .pdf file")
        # Before the work, which would be lost.
        import matplotlib  # noqa: F401
    batch = batch_file.read(file)
    with connection.open() as client:
        outcomes = compare.compare(client, batch, asked)
    if picture is not None:
        compare.draw(picture, str(file), outcomes)
    if as_json:
        print(compare.outcomes_json(outcomes))
        return
    where = display.console()
    compare.show(where, str(file), outcomes)
    display.print_warnings(where, {each.method: each.warnings for each in outcomes})
    if picture is not None:
        where.print(f"wrote {picture}", soft_wrap=True)


@counterweight.command("suggest")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@connected
def _suggest(connection: Connection, file: pathlib.Path, as_json: bool) -> None:
    """Print the bounds that take 1, 5 and 10 % out of the batch of a FILE.

    One table for each kind of rule, named for the preset and its parameters. The numbers describe
    this batch; they do not tell which method learns better.
    """
    batch = batch_file.read(file)
    with connection.open() as client:
        found = suggest.suggest(client, batch)
    if as_json:
        print(suggest.suggestions_json(found))
    else:
        suggest.show(display.console(), batch, found)


counterweight.add_command(audit_command.command)


@counterweight.command("methods")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@connected
def _methods(connection: Connection, name: str | None, as_json: bool) -> None:
    """List the named methods by kind and use, or explain the one called NAME."""
    with connection.open() as client:
        listing.show(display.console(), client.list_methods(), name, as_json=as_json)


@counterweight.command("demo")
@click.option("--save", type=_FILE, help="Folder that gets the batches, to try correct with.")
@connected
def _demo(connection: Connection, save: pathlib.Path | None) -> None:
    """Correct four small batches of a real run and show how drift grows."""
    where = display.console()
    with connection.open() as client:
        demo.run(client, where)
    if save is not None:
        for path in demo.save(save):
            where.print(f"wrote {path}", soft_wrap=True)


@counterweight.command("doctor")
@click.argument("file", type=_FILE, required=False)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="error",
    show_default=True,
    help="Severity from which on a finding in FILE makes the exit code 1.",
)
@click.option(
    "--policy-version",
    type=int,
    help="Version of the policy being trained; needed for the file's policy_versions.",
)
@click.option(
    "--shadows", help="Methods as for compare --methods, at most 4: what each would do to FILE."
)
@click.option(
    "--audit",
    type=click.Choice([batch_doctor.AUDIT_ROWS, batch_doctor.AUDIT_BEFORE_UPDATE]),
    help="Measure the drift between engine and trainer: by the rows of FILE whose old_log_probs "
    "are not NaN, or by current_log_probs of before the step's first update.",
)
@click.option("--alarm", type=float, help="For --audit: mean k3 at which you would act, nats, > 0.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@connected
def _doctor(
    connection: Connection,
    file: pathlib.Path | None,
    fail_on: str,
    policy_version: int | None,
    shadows: str | None,
    audit: str | None,
    alarm: float | None,
    as_json: bool,
) -> None:
    """Name what is wrong with the batch of a FILE, or with this installation.

    A FILE is as for counterweight correct. Its faults, such as log-probs that lie one token late,
    are named, each with its numbers, an example and the way out.

    Without FILE: what is installed and works, and why CUDA does not. The exit code is 1 if library
    or server cannot be used, or the server of --target does not answer.
    """
    methods = [] if shadows is None else list(read_methods(shadows).values())
    if alarm is not None and audit is None:
        raise InputError("--alarm: needs --audit")
    if file is not None:
        with connection.open() as client:
            found = batch_doctor.examine(client, file, policy_version, methods, audit, alarm)
        sys.exit(batch_doctor.report(found, file, fail_on, as_json=as_json))
    for flag, given in (("--shadows", methods), ("--audit", audit)):
        if given:
            raise InputError(f"{flag}: needs a FILE")
    target = None if connection.target.startswith("local:") else connection.target
    findings = list(doctor.examine(target, connection.open))
    sys.exit(doctor.report(display.console(), findings, as_json=as_json))


@counterweight.command(
    "serve", context_settings={"ignore_unknown_options": True, "help_option_names": ["-h"]}
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def _serve(flags: tuple[str, ...]) -> None:
    """Run counterweight-server until Ctrl-C; all FLAGS are the server's own, --help included.

    It is the file that COUNTERWEIGHT_SERVER names, else the wheel's, else the one on PATH.
    """
    sys.exit(serve.serve(find_server(), flags))


# The server's advice is for calls, and the command line's own.
_TOKEN = ("send 'authorization: Bearer TOKEN'", "--token-file FILE sends it")


def run() -> int:
    """Runs the command line and returns its exit code."""
    try:
        counterweight.main(standalone_mode=False, prog_name="counterweight")
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (InputError, click.UsageError) as error:
        return _fail(error.format_message() if isinstance(error, click.UsageError) else error, 2)
    except InvalidRequestError as error:
        return _fail(error, 2)
    except ModuleNotFoundError as error:
        return _fail(needs_extra(error), 1)
    except BrokenPipeError:
        # The reader of the output is gone; Python must not complain when it flushes at the end.
        sys.stdout = None
        return 1
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        return _fail(f"{named}{error.strerror or error}", 1)
    except (FailureError, CounterweightError) as error:
        return _fail(str(error).replace(*_TOKEN), 1)
    return 0


def _fail(why: object, code: int) -> int:
    print(f"counterweight: {' '.join(str(why).split())}", file=sys.stderr)
    return code
