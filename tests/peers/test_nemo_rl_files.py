"""NeMo-RL's example files: their ``loss_fn`` is a block of the dialect."""

from __future__ import annotations

from typing import Any

import pytest
from configuration_files import ANSWERED, outcomes


def policy_loss(tree: dict[str, Any]) -> Any:
    """Returns the node of a file, but for distillations, which have another loss."""
    return None if {"distillation", "teacher"} & tree.keys() else tree.get("loss_fn")


@pytest.mark.compares("dialect nemo_rl: files")
def test_a_loss_of_a_file_is_a_block() -> None:
    found = outcomes("nemo_rl", "examples/configs/**/*.yaml", policy_loss, ignore=False)
    assert found.pop(ANSWERED) > 80
    # Files that complete another one, and a loss of another kind.
    assert found.keys() <= {"truncated_importance_sampling_type", "kl_type"}, found
