from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupEstimator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_ESTIMATOR_UNSPECIFIED: _ClassVar[GroupEstimator]
    GROUP_ESTIMATOR_GRPO: _ClassVar[GroupEstimator]
    GROUP_ESTIMATOR_DR_GRPO: _ClassVar[GroupEstimator]
    GROUP_ESTIMATOR_RLOO: _ClassVar[GroupEstimator]
    GROUP_ESTIMATOR_REINFORCE_PP_BASELINE: _ClassVar[GroupEstimator]

class GroupVoters(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_VOTERS_UNSPECIFIED: _ClassVar[GroupVoters]
    GROUP_VOTERS_ALL: _ClassVar[GroupVoters]
    GROUP_VOTERS_KEPT_ROWS: _ClassVar[GroupVoters]
    GROUP_VOTERS_FULLY_KEPT_ROWS: _ClassVar[GroupVoters]

class LonelyGroup(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LONELY_GROUP_UNSPECIFIED: _ClassVar[LonelyGroup]
    LONELY_GROUP_ZERO: _ClassVar[LonelyGroup]
    LONELY_GROUP_RAW: _ClassVar[LonelyGroup]

class RewardStd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REWARD_STD_UNSPECIFIED: _ClassVar[RewardStd]
    REWARD_STD_NONE: _ClassVar[RewardStd]
    REWARD_STD_GROUP: _ClassVar[RewardStd]
    REWARD_STD_BATCH: _ClassVar[RewardStd]
    REWARD_STD_OTHERS: _ClassVar[RewardStd]

class Whitening(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHITENING_UNSPECIFIED: _ClassVar[Whitening]
    WHITENING_NONE: _ClassVar[Whitening]
    WHITENING_SAMPLE: _ClassVar[Whitening]
    WHITENING_POPULATION: _ClassVar[Whitening]
GROUP_ESTIMATOR_UNSPECIFIED: GroupEstimator
GROUP_ESTIMATOR_GRPO: GroupEstimator
GROUP_ESTIMATOR_DR_GRPO: GroupEstimator
GROUP_ESTIMATOR_RLOO: GroupEstimator
GROUP_ESTIMATOR_REINFORCE_PP_BASELINE: GroupEstimator
GROUP_VOTERS_UNSPECIFIED: GroupVoters
GROUP_VOTERS_ALL: GroupVoters
GROUP_VOTERS_KEPT_ROWS: GroupVoters
GROUP_VOTERS_FULLY_KEPT_ROWS: GroupVoters
LONELY_GROUP_UNSPECIFIED: LonelyGroup
LONELY_GROUP_ZERO: LonelyGroup
LONELY_GROUP_RAW: LonelyGroup
REWARD_STD_UNSPECIFIED: RewardStd
REWARD_STD_NONE: RewardStd
REWARD_STD_GROUP: RewardStd
REWARD_STD_BATCH: RewardStd
REWARD_STD_OTHERS: RewardStd
WHITENING_UNSPECIFIED: Whitening
WHITENING_NONE: Whitening
WHITENING_SAMPLE: Whitening
WHITENING_POPULATION: Whitening

class GroupBaseline(_message.Message):
    __slots__ = ("estimator", "voters", "fewest_voters", "lonely", "std", "epsilon", "whitening", "clip", "system")
    ESTIMATOR_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    FEWEST_VOTERS_FIELD_NUMBER: _ClassVar[int]
    LONELY_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    WHITENING_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    estimator: GroupEstimator
    voters: GroupVoters
    fewest_voters: int
    lonely: LonelyGroup
    std: RewardStd
    epsilon: float
    whitening: Whitening
    clip: float
    system: str
    def __init__(self, estimator: _Optional[_Union[GroupEstimator, str]] = ..., voters: _Optional[_Union[GroupVoters, str]] = ..., fewest_voters: _Optional[int] = ..., lonely: _Optional[_Union[LonelyGroup, str]] = ..., std: _Optional[_Union[RewardStd, str]] = ..., epsilon: _Optional[float] = ..., whitening: _Optional[_Union[Whitening, str]] = ..., clip: _Optional[float] = ..., system: _Optional[str] = ...) -> None: ...

class GroupAdvantagesRequest(_message.Message):
    __slots__ = ("request_id", "baseline", "rewards", "group_ids", "tokens", "kept_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    baseline: GroupBaseline
    rewards: _containers.RepeatedScalarFieldContainer[float]
    group_ids: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    kept_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., baseline: _Optional[_Union[GroupBaseline, _Mapping]] = ..., rewards: _Optional[_Iterable[float]] = ..., group_ids: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., kept_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupAdvantagesResponse(_message.Message):
    __slots__ = ("request_id", "advantages", "baselines", "metrics", "warnings")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGES_FIELD_NUMBER: _ClassVar[int]
    BASELINES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    advantages: _containers.RepeatedScalarFieldContainer[float]
    baselines: _containers.RepeatedScalarFieldContainer[float]
    metrics: _containers.ScalarMap[str, float]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., advantages: _Optional[_Iterable[float]] = ..., baselines: _Optional[_Iterable[float]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...
