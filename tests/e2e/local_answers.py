"""Pickles the answers of ``local:`` without grpcio and protobuf. Usage: local_answers.py FILE"""

from __future__ import annotations

import pickle
import sys
from typing import Any

if __name__ == "__main__":
    # None: there is no such module.
    sys.modules.update(dict.fromkeys(("grpc", "google", "google.protobuf")))

import counterweight_rl as cw
from goldens import BLAMED_FIELDS, GOLDENS, correct
from transports import LARGE, LOSS, SMALL, assert_same

SETTINGS: dict[str, Any] = {"run": "a", "replica": "b", "policy_version": 0, "seed": 7}
BATCHES: dict[str, dict[str, Any]] = {
    name: {**batch, **SETTINGS, "method": LOSS} for name, batch in {**SMALL, **LARGE}.items()
}
BATCHES["preset"] = {
    **SMALL["padded"],
    "method": cw.Preset("token_tis", upper=3.0),
    "metrics": False,
}


def assert_goldens(answers: dict[str, Any], client: cw.Client) -> None:
    """The answers to the goldens have the client's bytes, and refusals its errors."""
    for name, golden in GOLDENS.items():
        try:
            expected = correct(client, golden)
        except cw.InvalidRequestError as error:
            assert name in BLAMED_FIELDS
            assert answers[name] == (str(error), error.violations)
        else:
            assert name not in BLAMED_FIELDS
            assert_same(answers[name], expected)


def main() -> None:
    answers: dict[str, Any] = {}
    with cw.Client("local:") as client:
        for name, golden in GOLDENS.items():
            try:
                answers[name] = correct(client, golden)
            except cw.InvalidRequestError as error:
                answers[name] = (str(error), error.violations)
        for name, batch in BATCHES.items():
            answers[name] = client.correct(**batch)
        answers["tables"] = (client.list_methods(), client.server_info())
    with open(sys.argv[1], "wb") as out:
        pickle.dump(answers, out)


if __name__ == "__main__":
    main()
