"""Arguments of slime and of miles, its fork, as blocks of their dialects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from counterweight_rl.dialect_blocks import to_mapping
from counterweight_rl.dialect_fields import FIELDS

_TIS_NAMES = ("tis_clip", "tis_clip_low")
# Arguments that only the YAML of slime's and miles' MIS example sets.
_MIS_NAMES = tuple(
    name
    for name in FIELDS["slime"]
    if name.startswith(("tis_", "rs_", "use_rs")) and name not in _TIS_NAMES
)
_OURS = "counterweight_rl."


@dataclass(frozen=True)
class Trainer:
    """One of the two systems.

    Attributes:
        system: "slime" or "miles".
        icepop: Its path of icepop_function.
        mis: Its path of MIS.
        largest: Bound of the policy's log ratio, nats. None: none.
    """

    system: str
    icepop: str
    mis: str
    largest: float | None = None


SLIME = Trainer(
    "slime",
    icepop="slime.backends.megatron_utils.loss.icepop_function",
    mis="examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
)
MILES = Trainer(
    "miles",
    icepop="miles.backends.training_utils.loss_hub.corrections.icepop_function",
    mis="examples.infra_features.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
    largest=20.0,
)


def has_mis(args: Any) -> bool:
    """Returns whether the arguments are those of the MIS example."""
    return any(getattr(args, name, None) is not None for name in _MIS_NAMES)


def mis_block(args: Any) -> dict[str, Any]:
    """Returns the arguments of MIS as the block of the dialect "slime"."""
    return {
        **{name: getattr(args, name, None) for name in _MIS_NAMES},
        "custom_tis_function_path": SLIME.mis,
        "use_tis": getattr(args, "use_tis", True),
    }


def tis_block(args: Any, function: str | None = None) -> dict[str, Any]:
    """Returns the arguments of the built-in correction, or IcePop, as that block."""
    given = {name: getattr(args, name, None) for name in _TIS_NAMES}
    block = {"use_tis": True, **{name: n for name, n in given.items() if n is not None}}
    return block if function is None else {**block, "custom_tis_function_path": function}


def loss_block(trainer: Trainer, args: Any) -> dict[str, Any]:
    """Returns the arguments of the whole loss as the dialect's block, without the entropy's.

    A function of this package for the correction is that of the trainer.
    """
    block = dict(to_mapping(trainer.system, args))
    block.pop("entropy_coef", None)
    path = block.get("custom_tis_function_path")
    if isinstance(path, str) and path.startswith(_OURS):
        name = path.rpartition(".")[2]
        functions = {
            "icepop_function": trainer.icepop,
            "compute_mis_weights_with_cp": trainer.mis,
            "vanilla_tis_function": None,
            # The hooks have one name for both.
            "correct": trainer.mis if has_mis(args) else None,
        }
        block["custom_tis_function_path"] = functions.get(name, path)
    # Its divisors are of samples; the trainer divides the sum later.
    return {**block, "step_global_batch_size": 1}


def is_mis(trainer: Trainer, block: dict[str, Any]) -> bool:
    """Returns whether the block's correction is MIS."""
    return block.get("custom_tis_function_path") == trainer.mis
