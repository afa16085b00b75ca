"""Calls the shared servers until it is stopped, and counts calls, failures and wrong bytes.

client.py digests TARGET         prints the digest of each request's answer
client.py call TARGET FOLDER     calls over mutual TLS with the files of FOLDER; compares
client.py refused TARGET FOLDER  prints the errors without a certificate, and with a wrong token
"""

import hashlib
import itertools
import json
import pathlib
import signal
import sys
import time

import counterweight_rl as cw
import rollouts

METHOD = cw.Preset("geo_rs_token_tis", keep_lower=0.95, keep_upper=1.05)
STEPS = rollouts.read_steps()


def digest(client: cw.Client, step: rollouts.Step) -> str:
    """Returns the digest of the bytes that one call brings."""
    result = client.correct(method=METHOD, **step.batch)
    return hashlib.sha256(result.weights.tobytes() + result.keep_mask.tobytes()).hexdigest()


def connect(target: str, folder: pathlib.Path, **changed: str | None) -> cw.Client:
    """Returns a client with the certificate and token of ``folder``."""
    names = {"private_key": "tls.key", "certificate_chain": "tls.crt", **changed}
    files = {field: folder / name for field, name in names.items() if name and field != "token"}
    tls = cw.TlsConfig(root_certificates=folder / "ca.crt", **files)
    token = {"token": changed["token"]} if "token" in changed else {"token_file": folder / "token"}
    return cw.Client(target, tls=tls, timeout=60, **token)


def call(target: str, folder: pathlib.Path) -> None:
    """Calls without a pause; prints the tally each second."""
    want = json.loads((folder / "digests").read_text())
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    calls = failed = different = 0
    longest, shown = 0.0, time.monotonic()
    with connect(target, folder) as client:
        for step in itertools.cycle(STEPS):
            start = time.monotonic()
            try:
                different += digest(client, step) != want[step.name]
            except cw.CounterweightError as error:
                failed += 1
                print(f"failed: {error}", flush=True)
            calls += 1
            longest = max(longest, time.monotonic() - start)
            if stop or time.monotonic() > shown + 1:
                shown = time.monotonic()
                print(
                    f"{calls} calls, {failed} failed, {different} with other bytes, "
                    f"longest {longest:.2f} s",
                    flush=True,
                )
            if stop:
                return


def refused(target: str, folder: pathlib.Path) -> None:
    """Prints how calls end that may not be answered."""
    attempts = {
        "a wrong token": {"token": "wrong"},
        "no certificate": {"private_key": None, "certificate_chain": None},
    }
    for name, changed in attempts.items():
        with connect(target, folder, **changed) as client:
            try:
                digest(client, STEPS[0])
                print(f"{name}: answered")
            except cw.CounterweightError as error:
                print(f"{name}: {error}"[:160])


def main() -> None:
    """Runs one of the three."""
    match sys.argv[1:]:
        case ["digests", target]:
            with cw.Client(target) as client:
                print(json.dumps({step.name: digest(client, step) for step in STEPS}))
        case ["call", target, folder]:
            call(target, pathlib.Path(folder))
        case ["refused", target, folder]:
            refused(target, pathlib.Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
