"""AReaL's example files: their ``actor`` is a block of the dialect."""

from __future__ import annotations

import pytest
import releases
from configuration_files import ANSWERED, outcomes


@pytest.mark.compares("dialect areal: files")
@pytest.mark.skipif(bool(releases.RELEASE), reason="the wheel has no examples")
def test_an_actor_of_a_file_is_a_block() -> None:
    found = outcomes("areal", "examples/**/*.yaml", lambda tree: tree.get("actor"), ignore=True)
    assert found.pop(ANSWERED) > 60
    # Refused until they are computed.
    assert found.keys() <= {"prox_logp_method", "rejection_sampling.metric", "m2_threshold"}
