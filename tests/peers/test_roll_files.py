"""ROLL's example files: a whole tree is a block of the dialect."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import defaults
import other_fields
import pytest
import torch
from configuration_files import ANSWERED, outcomes
from counterweight_rl import dialect_blocks
from counterweight_rl.compat import client
from counterweight_rl.dialect_fields import OTHERS

pytestmark = pytest.mark.compares("dialect roll: files")
# Refused until they are computed.
REFUSED = {"pg_variant", "actor_train.pg_variant"}


def test_the_table_has_all_other_fields_of_the_classes() -> None:
    assert set(other_fields.names()) == OTHERS["roll"]


def test_a_whole_file_is_a_block() -> None:
    """Files with names that other nodes refer to, or of other pipelines, have unknown fields."""
    found = outcomes("roll", "examples/**/*.yaml", lambda tree: tree, ignore=True)
    assert found.pop(ANSWERED) > 100
    # Keys that are no strings, in fields that are no part of ROLL's classes.
    assert found.keys() <= REFUSED | {"keys must be strings, not int"}, found
    checked = outcomes("roll", "examples/**/*rlvr*/*.yaml", lambda tree: tree, ignore=False)
    assert checked.pop(ANSWERED) > 30
    # Fields of older releases.
    former = {"reward_norm", "offload_nccl", "lora_alpha"}
    assert checked.keys() <= REFUSED | former, checked


def of_worker(**fields: Any) -> dict[str, Any]:
    return {"actor_train": {"system_envs": {1: "secret"}, **fields}}


@pytest.mark.parametrize(
    ("tree", "block"),
    [
        ({}, {}),
        (of_worker(), {}),
        (
            of_worker(worker_cls="roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker"),
            {"pg_variant": "vanilla"},
        ),
        (
            of_worker(
                worker_cls="roll.pipeline.agentic.agentic_actor_pg_worker.ActorWorker",
                pg_variant="tis",
            ),
            {"pg_variant": "tis"},
        ),
    ],
    ids=str,
)
def test_the_default_object_written_out(tree: dict[str, Any], block: dict[str, Any]) -> None:
    given = dict.fromkeys(OTHERS["roll"]) | vars(defaults.of_roll()) | tree
    given["train_infer_correction"] = dialect_blocks.to_mapping(
        "roll", {"train_infer_correction": given["train_infer_correction"]}
    )["train_infer_correction"]
    assert len(given) > 100
    answers = [
        client().correct(
            current_log_probs=torch.full((2, 3), -1.0),
            old_log_probs=torch.full((2, 3), -1.1),
            advantages=torch.tensor([[1.0], [-2.0]]),
            response_mask=torch.ones(2, 3),
            method=cw.Dialect("roll", one),
            outputs=["loss", "gradient"],
        )
        for one in (block, given)
    ]
    assert answers[0].loss == answers[1].loss
    assert torch.equal(answers[0].gradient, answers[1].gradient)
    assert answers[0].metrics == answers[1].metrics
