"""The choices of an audit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from counterweight_rl import messages
from counterweight_rl.config import Preset
from counterweight_rl.suggestions import did_you_mean
from counterweight_rl.transport.channel import TlsConfig

KEYS = ("staleness", "cause", "step", "version", "position", "length", "replica")
"""The properties of tokens and sequences that drift is shown by."""
ROLES: Mapping[str, tuple[str, ...]] = {
    "rollout_log_probs": (
        "rollout_log_probs",
        "inference_logprobs",
        "generation_logprobs",
        "sampling_logprobs",
        "rollout_logprobs",
    ),
    "old_log_probs": (
        "old_log_probs",
        "trainer_logprobs",
        "prev_logprobs",
        "old_per_token_logps",
        "current_log_probs",
    ),
    "response_mask": (
        "response_mask",
        "loss_mask",
        "token_loss_mask",
        "completion_mask",
        "action_mask",
    ),
    "policy_versions": ("policy_versions", "rollout_version", "weight_version"),
    "policy_version": ("policy_version", "trainer_version"),
    "step": ("step", "global_step"),
    "replica": ("replica", "worker", "rank"),
    "recorded_at": ("recorded_at",),
    "response_id": ("response_id",),
}
"""The names under which files have each column; the first one that a file has counts."""
LOCAL = "local:?threads=1&max_tokens=1099511627776"
"""The engine of this process, with one thread, for units of any size."""
REQUIRED = ("rollout_log_probs", "old_log_probs", "response_mask")
"""The columns without which there is nothing to compare."""


@dataclass(frozen=True)
class Spec:
    """The choices of an audit, which are equal for all its parts.

    Attributes:
        methods: Presets that are tried on the rows, by the name that the report gives them.
        by: Some of KEYS.
        columns: Names of the files' columns by role, where they are not among ROLES.
        since: Rows recorded earlier are left out, seconds since 1970; of files that do not have
            the time of a row, the time of the file counts. None: all rows.
        responses: File or folder of responses of vLLM or SGLang as JSON, which every process has to
            read: the engine's log-probs of rows that have a response_id instead. None: none.
        doctor: Whether batches are examined for faults.
        target: The engine, as in ``Client``; every process of an audit has to reach it. Numbers do
            not depend on it.
        timeout: Seconds of a call to a server; > 0. "local:" has no limit.
        token_file: As in ``Client``.
        tls: As in ``Client``; of files, which every process has to read.
    """

    methods: Mapping[str, Preset] = field(default_factory=dict)
    by: Sequence[str] = KEYS
    columns: Mapping[str, str] = field(default_factory=dict)
    since: float | None = None
    responses: str | None = None
    doctor: bool = True
    target: str = LOCAL
    timeout: float = 60.0
    token_file: str | None = None
    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        for name in self.by:
            if name not in KEYS:
                raise ValueError(
                    f"by: there is no {name!r}, but {', '.join(KEYS)}{did_you_mean(name, KEYS)}"
                )
        twice = [name for name in KEYS if list(self.by).count(name) > 1]
        if twice:
            raise ValueError(f"by: {twice[0]} is named twice")
        for role in self.columns:
            if role not in ROLES:
                raise ValueError(
                    f"columns: there is no role {role!r}, but {', '.join(ROLES)}"
                    f"{did_you_mean(role, ROLES)}"
                )

    @property
    def hash(self) -> str:
        """Equal for specs with parts that add up."""
        methods = {name: messages.method_to_message(m) for name, m in self.methods.items()}
        whole = [methods, sorted(self.by), dict(self.columns), self.since, self.doctor]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]

    def names(self, role: str) -> tuple[str, ...]:
        """The columns that may have a role."""
        given = self.columns.get(role)
        return ROLES[role] if given is None else (given,)
