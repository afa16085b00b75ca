"""AReaL's example files: a whole file, and its ``actor``, is a block of the dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import defaults
import other_fields
import pytest
import releases
import torch
from configuration_files import ANSWERED, outcomes
from counterweight_rl.compat import client
from counterweight_rl.dialect_fields import OTHERS

pytestmark = [
    pytest.mark.compares("dialect areal: files"),
    pytest.mark.skipif(bool(releases.RELEASE), reason="the wheel has no examples"),
]
# Fields of older releases, which AReaL refuses too.
FORMER = {"behav_imp_weight_cap", "behave_imp_weight_cap", "beta"}
# Refused until they are computed.
REFUSED = {"prox_logp_method", "rejection_sampling.metric", "m2_threshold"}


def test_the_table_has_all_other_fields_of_the_class() -> None:
    assert set(other_fields.names()) == OTHERS["areal"]


@pytest.mark.parametrize(
    ("node_of", "prefix"), [(lambda tree: tree.get("actor"), ""), (lambda tree: tree, "actor.")]
)
def test_a_file_is_a_block(node_of: Callable[[Any], Any], prefix: str) -> None:
    found = outcomes(
        "areal",
        "examples/**/*.yaml",
        lambda tree: node_of(tree) if isinstance(tree.get("actor"), dict) else None,
        ignore=False,
    )
    assert found.pop(ANSWERED) > 55
    assert found.keys() <= {f"{prefix}{field}" for field in REFUSED | FORMER}


def test_the_default_object_written_out() -> None:
    """With a value for each field, which the dataclass has too."""
    given = dict.fromkeys(OTHERS["areal"]) | vars(defaults.of_areal())
    block = {name: getattr(one, "value", one) for name, one in given.items()}
    assert len(block) > 70
    answers = [
        client().correct(
            current_log_probs=torch.full((2, 3), -1.0),
            rollout_log_probs=torch.full((2, 3), -1.1),
            advantages=torch.tensor([[1.0], [-2.0]]),
            response_mask=torch.ones(2, 3),
            method=cw.Dialect("areal", one),
            outputs=["loss", "gradient"],
        )
        for one in ({}, block, {"actor": block})
    ]
    for one in answers[1:]:
        assert one.loss == answers[0].loss
        assert torch.equal(one.gradient, answers[0].gradient)
        assert one.metrics == answers[0].metrics
