"""The real rollouts of data/; its README describes them."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"
# Facts that the files do not contain.
ENGINES = {"step_07": "int8", "step_08": "int4"}
LOSS_INPUTS = ("current_log_probs", "ref_log_probs", "advantages")
LAGS = {"step_05": "mixed", "step_06": "in flight"}


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        name: "step_00".
        engine: Arithmetic of the rollout engine: "bf16", "int8" or "int4".
        lag: "constant": all tokens are equally stale; "mixed" or "in flight" if not.
        staleness: Mean over the tokens that count of trainer version - version that sampled.
        trainer_version: Training steps finished before this one.
        batch: Arguments of Client.correct, packed.
        policy_versions: Version that sampled each token.
        loss_inputs: Further arguments for a policy loss with a KL penalty.
    """

    name: str
    engine: str
    lag: str
    staleness: float
    trainer_version: int
    batch: dict[str, Any]
    policy_versions: np.ndarray
    loss_inputs: dict[str, Any]

    def tokens(self) -> int:
        return int(self.batch["response_mask"].sum())


def read_step(path: pathlib.Path) -> Step:
    with np.load(path) as arrays:
        counts = arrays["response_mask"] != 0
        stale = arrays["trainer_version"] - arrays["token_policy_version"]
        names = ("rollout_log_probs", "old_log_probs", "response_mask", "sequence_lengths")
        return Step(
            name=path.stem,
            engine=ENGINES.get(path.stem, "bf16"),
            lag=LAGS.get(path.stem, "constant"),
            staleness=float(stale[counts].mean()),
            trainer_version=int(arrays["trainer_version"]),
            batch={name: arrays[name] for name in names},
            policy_versions=arrays["token_policy_version"],
            loss_inputs={name: arrays[name] for name in LOSS_INPUTS},
        )


def read_steps(folder: pathlib.Path = DATA) -> list[Step]:
    """All steps, in order.

    Raises:
        FileNotFoundError: There is none.
    """
    paths = sorted(folder.glob("step_*.npz"))
    if not paths:
        raise FileNotFoundError(f"no step_*.npz in {folder}; git checkout -- {folder} brings them")
    return [read_step(path) for path in paths]
