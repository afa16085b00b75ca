"""Starts a server, corrects nine real training steps, shows drift and each method's dropped share.

.venv/bin/python tests/demo/demo.py --server build/release/counterweight-server
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# server_process.py is in the end-to-end tests.
sys.path.insert(0, str(ROOT / "tests/e2e"))
# Proxies must not intercept connections on this machine.
os.environ["no_proxy"] = "127.0.0.1,localhost"

try:
    import chart
    import counterweight_rl as cw
    from keep import keep, page_of
    from report import Outcome, Trial, drift_table, dropped_table, outcome
    from rollouts import Step, read_steps
    from server_process import ServerProcess
    from three_runs import RUNS, runs_table, sentences_of, train_as
except ModuleNotFoundError as error:
    sys.exit(
        f"demo: Python has no module {error.name}; `make demo` installs all, and .venv/bin/python has it"
    )

TRIALS = (
    Trial(
        label="token_tis",
        run="demo-token_tis",
        method="token_tis",
        explanation="a preset: the weight of each token, truncated at 2; drops nothing",
    ),
    Trial(
        # The preset's name alone would mean its default interval.
        label="geo_rs 0.95-1.05",
        run="demo-geo_rs-0.95-1.05",
        method=cw.Preset("geo_rs_token_tis", keep_lower=0.95, keep_upper=1.05),
        explanation="preset geo_rs_token_tis: drops sequences whose geometric mean ratio leaves [0.95, 1.05]",
    ),
    Trial(
        label="verl seq_mis",
        run="demo-verl_seq_mis",
        method=cw.Dialect(
            "verl",
            {
                "rollout_is": "sequence",
                "rollout_is_threshold": 2.0,
                "rollout_rs": "seq_sum_k1",
                "rollout_rs_threshold": "0.5_2.0",
            },
        ),
        explanation="verl's own block: drops sequences whose product of ratios leaves [0.5, 2]",
        effective_sample_size="rollout_corr/rollout_is_eff_sample_size",
    ),
)
# The five lines of the Prometheus page that are shown, for the run of the second method.
SHOWN = (
    "counterweight_drift_kl_nats",
    "counterweight_drift_k3_nats",
    "counterweight_drift_effective_sample_size_ratio",
    "counterweight_drift_kept_token_ratio",
    "counterweight_drift_dropped_tokens_total",
)


def say(line: str) -> None:
    print(f"demo: {line}", flush=True)


def relative(path: pathlib.Path) -> pathlib.Path:
    """Returns the path relative to the current folder, if it is below it."""
    here = pathlib.Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def correct(client: cw.Client, trial: Trial, step: Step) -> Outcome:
    result = client.correct(
        **step.batch,
        method=trial.method,
        run=trial.run,
        policy_version=step.trainer_version,
        policy_versions=step.policy_versions,
    )
    return outcome(trial, step, result)


def shown_lines(page: str, run: str) -> list[str]:
    lines = [line for line in page.splitlines() if f'run="{run}"' in line]
    return [line for name in SHOWN for line in lines if line.startswith(name + "{")]


def audit_record(record: pathlib.Path, target: str) -> None:
    """Audits the steps that were recorded."""
    flags = ["audit", str(record), "--by=staleness,step", "--methods=token_tis,icepop"]
    flags.append(f"--target={target}")
    say(f"counterweight {' '.join(flags)}")
    print(flush=True)
    # Findings and what could not be read have exit codes of their own, and are printed.
    subprocess.run([sys.executable, "-m", "counterweight_rl.cli", *flags], check=False)
    print(flush=True)


def show_three_runs(server: ServerProcess, steps: list[Step]) -> None:
    with cw.Client(server.address) as client:
        seen = [train_as(client, each, steps) for each in RUNS]
    print(
        "\nThree runs over these steps: a healthy one, one whose labels are shifted, one\n"
        "whose loss forgets the weights. Each reports what its loss used:\n"
    )
    print(runs_table(seen, len(steps)))
    for line in sentences_of(seen):
        print(f"\n{line}")
    print()


def run(server: ServerProcess, picture: pathlib.Path, *, stay: bool) -> None:
    steps = read_steps()
    record = picture.parent / "record"
    shutil.rmtree(record, ignore_errors=True)
    with cw.Client(server.address) as client, cw.Client(server.address, record=record) as recording:
        info = client.server_info()
        say(f"server {info.version}, backend {info.backend}, listens on {server.address}")
        say(f"correcting {len(steps)} training steps with {len(TRIALS)} methods")
        # The rows are the same for all methods, so the calls of one of them are recorded.
        clients = (recording, *(client for _ in TRIALS[1:]))
        outcomes = [
            [correct(of_trial, trial, step) for step in steps]
            for of_trial, trial in zip(clients, TRIALS, strict=True)
        ]

    print(
        "\nDrift of the trainer's policy from the one that sampled, by step: versions behind,\n"
        "KL in nats per token, chi2, effective sample size of token_tis:\n"
    )
    print(drift_table(steps, outcomes[0]))
    print("\nWhat each method would do:\n")
    width = max(len(trial.label) for trial in TRIALS)
    for trial in TRIALS:
        print(f"  {trial.label:{width}}  {trial.explanation}")
    print(
        "\nTokens whose weight token_tis truncates at its bound; tokens, and sequences,\n"
        "that the others drop:\n"
    )
    print(dropped_table(steps, TRIALS, outcomes))

    shown = TRIALS[1].run
    print(
        f"\nFive lines of what Prometheus sees ({server.metrics_url}),\n"
        f"run {shown} after its last step:\n"
    )
    for line in shown_lines(server.scrape(), shown):
        print(f"  {line}")
    show_three_runs(server, steps)
    say("drawing")
    chart.draw(picture, steps, TRIALS, outcomes)
    say(f"the picture is {relative(picture)}")
    audit_record(relative(record), server.address)
    if not stay:
        return
    with cw.Client(server.address) as client:

        def train(step: Step) -> None:
            for trial in TRIALS:
                correct(client, trial, step)

        keep(server, [functools.partial(train, step) for step in steps], say)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--server",
        type=pathlib.Path,
        default=ROOT / "build/release/counterweight-server",
        help="the server's binary (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=ROOT / "build/demo/drift.png",
        help="where to save the picture (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="leave the server running, and a Prometheus, until Ctrl-C",
    )
    arguments = parser.parse_args()
    if not arguments.server.is_file():
        sys.exit(
            f"demo: there is no {arguments.server}; run `make build`, or name the server with --server"
        )
    os.environ["COUNTERWEIGHT_SERVER"] = str(arguments.server.resolve())
    say("starting the server on free ports")
    try:
        server = ServerProcess(own_group=arguments.keep)
    except (OSError, RuntimeError) as error:
        sys.exit(
            f"demo: {error}\ndemo: if the binary is old or of another machine, run `make build`"
        )
    picture = arguments.output.resolve()
    try:
        run(server, picture, stay=arguments.keep)
        server.terminate()
        server.wait()
    except cw.CounterweightError as error:
        sys.exit(
            f"demo: the server refused: {error}\ndemo: a server of another version? run `make build`"
        )
    except OSError as error:
        sys.exit(f"demo: {error}")
    finally:
        server.stop()
    say("the server has stopped")
    say(
        "next: `make serve` keeps a server running, and client/python/README.md shows how to call it"
    )
    if not arguments.keep:
        say(f"curves in a browser were at {page_of(server)}; `make demo KEEP=1` leaves them there")


if __name__ == "__main__":
    main()
