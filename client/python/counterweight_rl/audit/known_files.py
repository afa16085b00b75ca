"""Files of other systems that have no log-probs of both policies, and what they lack."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from counterweight_rl.audit.rows import SourceError
from counterweight_rl.audit.spec import REQUIRED, Spec

_RECORD = 'record them with counterweight_rl.Client(..., record="DIR")'
# The columns of each; other files do not have them by chance.
_KNOWN = (
    ({"head_version", "tail_version"}, "AReaL's dump has versions and rewards"),
    ({"input", "output", "score"}, "verl's rollout dump has texts and scores"),
    ({"prompt", "completion"}, "TRL's log of completions has texts, rewards and advantages"),
    ({"sampling_client_step"}, "Tinker's rollout summaries have steps and rewards"),
    ({"trajectory"}, "prime-rl's upload has trajectories as text"),
)
ONE_SIDE = (
    "has responses of an engine, and no trainer's log-probs: nothing to compare; write those as "
    "rows with response_id, old_log_probs and response_mask, and name this file by --responses"
)
_BY_SUFFIX = {
    ".pt": "slime's debug data is a pickle, which is not opened: it could run code; write "
    "rollout_log_probs, log_probs and loss_mask as columns of a Parquet file",
    ".pkl": "SkyRL's dump is a pickle, which is not opened: it could run code; write "
    "rollout_logprobs, action_log_probs and loss_mask as columns of a Parquet file",
}
SUFFIXES = (".parquet", ".jsonl", ".npz", *_BY_SUFFIX)
"""The files that an audit looks at."""


def refuse_by_suffix(suffix: str) -> None:
    """Refuses files of a kind that is never read.

    Raises:
        SourceError: It is one.
    """
    if suffix in _BY_SUFFIX:
        raise SourceError(_BY_SUFFIX[suffix])


def joins(found: Mapping[str, str], spec: Spec) -> bool:
    """Whether the engine's log-probs of a file are those of responses."""
    lacks_them = "rollout_log_probs" not in found and "response_id" in found
    return spec.responses is not None and lacks_them


def refuse_unless_complete(found: Mapping[str, str], columns: Collection[str], spec: Spec) -> None:
    """Refuses a file that lacks a column.

    Args:
        found: The file's columns by role.
        columns: All of its columns.
        spec: The audit.

    Raises:
        SourceError: It lacks one; the sentence names the way out.
    """
    missing = [role for role in REQUIRED if role not in found]
    if not missing or (missing == ["rollout_log_probs"] and joins(found, spec)):
        return
    for role in missing:
        if role in spec.columns:
            raise SourceError(
                f"has no column {spec.columns[role]}, as which --columns names {role}"
            )
    has_rollout, has_old = ("rollout_log_probs" in found), ("old_log_probs" in found)
    if not has_rollout and not has_old:
        for names, what in _KNOWN:
            if names <= {*columns}:
                raise SourceError(f"{what}, and no log-probs: nothing to compare; {_RECORD}")
    if has_rollout and not has_old:
        raise SourceError(f"has no trainer's log-probs: nothing to compare; {_RECORD}")
    if has_old and not has_rollout and "response_id" in found:
        raise SourceError(
            "has no log-probs of the engine; --responses names the files with its responses"
        )
    if has_old and not has_rollout and spec.responses is not None:
        raise SourceError("has no column response_id, which names the response of a row")
    if has_old and not has_rollout:
        raise SourceError(f"has no log-probs of the engine: nothing to compare; {_RECORD}")
    listed = ", ".join(list(columns)[:12])
    raise SourceError(
        f"lacks {', '.join(missing)}; it has {listed}; --columns {missing[0]}=NAME names a column"
    )
