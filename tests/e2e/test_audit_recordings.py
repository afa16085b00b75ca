"""Audits of recordings, whose numbers of each sequence say what some lists hold."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import counterweight_rl as cw
import numpy as np
import pyarrow.parquet as pq
from counterweight_rl import audit


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.mark.parametrize("mask_has_holes", [True, False])
@pytest.mark.parametrize("versions", ["of sequences", "of tokens", "none"])
def test_lists_of_a_recording_are_read_where_numbers_do_not_say_them(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    versions: str,
    mask_has_holes: bool,
) -> None:
    rng = np.random.default_rng(0)
    lengths = [5, 1, 40, 0, 9]
    mask = np.ones(55, bool)
    mask[[7, 30]] = not mask_has_holes
    of_tokens = np.repeat(np.array([3, 4, 2, 4, -1], np.int32), lengths)
    of_tokens[20:] += versions == "of tokens"
    given: dict[str, Any] = {} if versions == "none" else {"policy_versions": of_tokens}
    with cw.Client("local:", record=tmp_path / "log") as client:
        client.correct(
            method="token_tis",
            rollout_log_probs=-rng.exponential(size=55).astype(np.float32),
            old_log_probs=-rng.exponential(size=55).astype(np.float32),
            response_mask=mask,
            sequence_lengths=lengths,
            policy_version=5,
            **given,
        )
    (file,) = (tmp_path / "log").glob("*.parquet")
    table = pq.read_table(file)
    # Another writer's file has no numbers that count.
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "plain.parquet")
    read: list[str] = []
    read_row_group = pq.ParquetFile.read_row_group

    def counted(self: Any, group: int, columns: list[str], **options: Any) -> Any:
        read.extend(columns)
        return read_row_group(self, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    spec = audit.Spec()
    recorded = audit.report(audit.unit(str(file), 0, spec), spec)
    assert ("response_mask" in read) is mask_has_holes
    assert ("policy_versions" in read) is (versions == "of tokens")
    plain = audit.report(audit.unit(str(tmp_path / "plain.parquet"), 0, spec), spec)
    assert recorded.digest == plain.digest
    # A recording without the numbers.
    numbers = {"tokens", "oldest_version", "newest_version"} & {*table.column_names}
    pq.write_table(table.drop_columns([*numbers]), tmp_path / "bare.parquet")
    bare = audit.report(audit.unit(str(tmp_path / "bare.parquet"), 0, spec), spec)
    assert bare.digest == plain.digest
