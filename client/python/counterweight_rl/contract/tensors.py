"""The enums of proto/counterweight/v1/tensor.proto that arrays are sent with."""

from __future__ import annotations

from enum import IntEnum

ROLE_PREFIX = "TENSOR_ROLE_"
"""The prefix of roles in the contract."""
DTYPE_PREFIX = "D_TYPE_"
"""The prefix of dtypes in the contract."""


class TensorRole(IntEnum):
    """The argument or the output that a tensor is."""

    UNSPECIFIED = 0
    ROLLOUT_LOG_PROBS = 1
    OLD_LOG_PROBS = 2
    CURRENT_LOG_PROBS = 3
    REF_LOG_PROBS = 4
    RESPONSE_MASK = 5
    ADVANTAGES = 6
    ENTROPIES = 7
    REWARDS = 8
    TEACHER_LOG_PROBS = 9
    POLICY_VERSIONS = 10
    WEIGHTS = 16
    KEEP_MASK = 17
    TOKEN_REASONS = 18
    SEQUENCE_REASONS = 19
    GRADIENT = 20


class DType(IntEnum):
    """The elements of a tensor, little-endian."""

    UNSPECIFIED = 0
    F32 = 1
    BF16 = 2
    F16 = 3
    U8 = 4
    U16 = 5
    I32 = 6
