from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RatioSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RATIO_SOURCE_UNSPECIFIED: _ClassVar[RatioSource]
    RATIO_SOURCE_OLD_ROLLOUT: _ClassVar[RatioSource]
    RATIO_SOURCE_CURRENT_ROLLOUT: _ClassVar[RatioSource]
    RATIO_SOURCE_CURRENT_OLD: _ClassVar[RatioSource]

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    LEVEL_TOKEN: _ClassVar[Level]
    LEVEL_SEQUENCE: _ClassVar[Level]
    LEVEL_GEOMETRIC: _ClassVar[Level]
    LEVEL_PREFIX: _ClassVar[Level]
    LEVEL_TURN: _ClassVar[Level]

class Bound(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BOUND_UNSPECIFIED: _ClassVar[Bound]
    BOUND_NONE: _ClassVar[Bound]
    BOUND_TRUNCATE: _ClassVar[Bound]
    BOUND_MASK: _ClassVar[Bound]

class Estimator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ESTIMATOR_UNSPECIFIED: _ClassVar[Estimator]
    ESTIMATOR_RATIO: _ClassVar[Estimator]
    ESTIMATOR_K2: _ClassVar[Estimator]
    ESTIMATOR_K3: _ClassVar[Estimator]
    ESTIMATOR_BINARY_KL: _ClassVar[Estimator]
    ESTIMATOR_TOTAL_VARIATION: _ClassVar[Estimator]
    ESTIMATOR_DIFFERENCE: _ClassVar[Estimator]
    ESTIMATOR_REVERSE_K3: _ClassVar[Estimator]

class Aggregation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AGGREGATION_UNSPECIFIED: _ClassVar[Aggregation]
    AGGREGATION_TOKEN: _ClassVar[Aggregation]
    AGGREGATION_SUM: _ClassVar[Aggregation]
    AGGREGATION_MEAN: _ClassVar[Aggregation]
    AGGREGATION_MAX: _ClassVar[Aggregation]
    AGGREGATION_ALL: _ClassVar[Aggregation]
    AGGREGATION_PREFIX_MEAN: _ClassVar[Aggregation]
    AGGREGATION_TURN_MEAN: _ClassVar[Aggregation]

class RuleEvaluation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_EVALUATION_UNSPECIFIED: _ClassVar[RuleEvaluation]
    RULE_EVALUATION_PARALLEL: _ClassVar[RuleEvaluation]
    RULE_EVALUATION_SEQUENTIAL: _ClassVar[RuleEvaluation]

class RuleCondition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_CONDITION_UNSPECIFIED: _ClassVar[RuleCondition]
    RULE_CONDITION_ALWAYS: _ClassVar[RuleCondition]
    RULE_CONDITION_NEGATIVE_ADVANTAGE: _ClassVar[RuleCondition]
    RULE_CONDITION_POSITIVE_ADVANTAGE: _ClassVar[RuleCondition]
    RULE_CONDITION_NON_POSITIVE_ADVANTAGE: _ClassVar[RuleCondition]

class RuleEffect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RULE_EFFECT_UNSPECIFIED: _ClassVar[RuleEffect]
    RULE_EFFECT_DROP: _ClassVar[RuleEffect]
    RULE_EFFECT_ZERO_WEIGHT: _ClassVar[RuleEffect]

class Surrogate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SURROGATE_UNSPECIFIED: _ClassVar[Surrogate]
    SURROGATE_PPO_CLIP: _ClassVar[Surrogate]
    SURROGATE_GSPO: _ClassVar[Surrogate]
    SURROGATE_GSPO_TOKEN: _ClassVar[Surrogate]
    SURROGATE_CISPO: _ClassVar[Surrogate]
    SURROGATE_SAPO: _ClassVar[Surrogate]
    SURROGATE_REINFORCE: _ClassVar[Surrogate]
    SURROGATE_GPG: _ClassVar[Surrogate]
    SURROGATE_DRO: _ClassVar[Surrogate]
    SURROGATE_DPPO_TV: _ClassVar[Surrogate]
    SURROGATE_DPPO_KL: _ClassVar[Surrogate]
    SURROGATE_GEO_MEAN: _ClassVar[Surrogate]
    SURROGATE_LUSPO: _ClassVar[Surrogate]
    SURROGATE_VESPO: _ClassVar[Surrogate]
    SURROGATE_ROLLOUT_IS: _ClassVar[Surrogate]
    SURROGATE_KL_COV: _ClassVar[Surrogate]
    SURROGATE_CLIP_COV: _ClassVar[Surrogate]
    SURROGATE_CROSS_ENTROPY: _ClassVar[Surrogate]
    SURROGATE_IMPORTANCE_SAMPLING: _ClassVar[Surrogate]

class LossAggregation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_AGGREGATION_UNSPECIFIED: _ClassVar[LossAggregation]
    LOSS_AGGREGATION_TOKEN_MEAN: _ClassVar[LossAggregation]
    LOSS_AGGREGATION_TOKEN_SUM: _ClassVar[LossAggregation]
    LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM: _ClassVar[LossAggregation]
    LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN: _ClassVar[LossAggregation]
    LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM: _ClassVar[LossAggregation]

class LossDenominator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOSS_DENOMINATOR_UNSPECIFIED: _ClassVar[LossDenominator]
    LOSS_DENOMINATOR_ORIGINAL: _ClassVar[LossDenominator]
    LOSS_DENOMINATOR_KEPT: _ClassVar[LossDenominator]
    LOSS_DENOMINATOR_GLOBAL: _ClassVar[LossDenominator]

class KlEstimator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KL_ESTIMATOR_UNSPECIFIED: _ClassVar[KlEstimator]
    KL_ESTIMATOR_K1: _ClassVar[KlEstimator]
    KL_ESTIMATOR_K2: _ClassVar[KlEstimator]
    KL_ESTIMATOR_K3: _ClassVar[KlEstimator]
    KL_ESTIMATOR_ABS: _ClassVar[KlEstimator]
RATIO_SOURCE_UNSPECIFIED: RatioSource
RATIO_SOURCE_OLD_ROLLOUT: RatioSource
RATIO_SOURCE_CURRENT_ROLLOUT: RatioSource
RATIO_SOURCE_CURRENT_OLD: RatioSource
LEVEL_UNSPECIFIED: Level
LEVEL_TOKEN: Level
LEVEL_SEQUENCE: Level
LEVEL_GEOMETRIC: Level
LEVEL_PREFIX: Level
LEVEL_TURN: Level
BOUND_UNSPECIFIED: Bound
BOUND_NONE: Bound
BOUND_TRUNCATE: Bound
BOUND_MASK: Bound
ESTIMATOR_UNSPECIFIED: Estimator
ESTIMATOR_RATIO: Estimator
ESTIMATOR_K2: Estimator
ESTIMATOR_K3: Estimator
ESTIMATOR_BINARY_KL: Estimator
ESTIMATOR_TOTAL_VARIATION: Estimator
ESTIMATOR_DIFFERENCE: Estimator
ESTIMATOR_REVERSE_K3: Estimator
AGGREGATION_UNSPECIFIED: Aggregation
AGGREGATION_TOKEN: Aggregation
AGGREGATION_SUM: Aggregation
AGGREGATION_MEAN: Aggregation
AGGREGATION_MAX: Aggregation
AGGREGATION_ALL: Aggregation
AGGREGATION_PREFIX_MEAN: Aggregation
AGGREGATION_TURN_MEAN: Aggregation
RULE_EVALUATION_UNSPECIFIED: RuleEvaluation
RULE_EVALUATION_PARALLEL: RuleEvaluation
RULE_EVALUATION_SEQUENTIAL: RuleEvaluation
RULE_CONDITION_UNSPECIFIED: RuleCondition
RULE_CONDITION_ALWAYS: RuleCondition
RULE_CONDITION_NEGATIVE_ADVANTAGE: RuleCondition
RULE_CONDITION_POSITIVE_ADVANTAGE: RuleCondition
RULE_CONDITION_NON_POSITIVE_ADVANTAGE: RuleCondition
RULE_EFFECT_UNSPECIFIED: RuleEffect
RULE_EFFECT_DROP: RuleEffect
RULE_EFFECT_ZERO_WEIGHT: RuleEffect
SURROGATE_UNSPECIFIED: Surrogate
SURROGATE_PPO_CLIP: Surrogate
SURROGATE_GSPO: Surrogate
SURROGATE_GSPO_TOKEN: Surrogate
SURROGATE_CISPO: Surrogate
SURROGATE_SAPO: Surrogate
SURROGATE_REINFORCE: Surrogate
SURROGATE_GPG: Surrogate
SURROGATE_DRO: Surrogate
SURROGATE_DPPO_TV: Surrogate
SURROGATE_DPPO_KL: Surrogate
SURROGATE_GEO_MEAN: Surrogate
SURROGATE_LUSPO: Surrogate
SURROGATE_VESPO: Surrogate
SURROGATE_ROLLOUT_IS: Surrogate
SURROGATE_KL_COV: Surrogate
SURROGATE_CLIP_COV: Surrogate
SURROGATE_CROSS_ENTROPY: Surrogate
SURROGATE_IMPORTANCE_SAMPLING: Surrogate
LOSS_AGGREGATION_UNSPECIFIED: LossAggregation
LOSS_AGGREGATION_TOKEN_MEAN: LossAggregation
LOSS_AGGREGATION_TOKEN_SUM: LossAggregation
LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM: LossAggregation
LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN: LossAggregation
LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM: LossAggregation
LOSS_DENOMINATOR_UNSPECIFIED: LossDenominator
LOSS_DENOMINATOR_ORIGINAL: LossDenominator
LOSS_DENOMINATOR_KEPT: LossDenominator
LOSS_DENOMINATOR_GLOBAL: LossDenominator
KL_ESTIMATOR_UNSPECIFIED: KlEstimator
KL_ESTIMATOR_K1: KlEstimator
KL_ESTIMATOR_K2: KlEstimator
KL_ESTIMATOR_K3: KlEstimator
KL_ESTIMATOR_ABS: KlEstimator

class Method(_message.Message):
    __slots__ = ("preset", "config", "dialect")
    PRESET_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    preset: Preset
    config: CorrectionConfig
    dialect: Dialect
    def __init__(self, preset: _Optional[_Union[Preset, _Mapping]] = ..., config: _Optional[_Union[CorrectionConfig, _Mapping]] = ..., dialect: _Optional[_Union[Dialect, _Mapping]] = ...) -> None: ...

class Preset(_message.Message):
    __slots__ = ("name", "parameters", "policy_loss", "kl_penalty", "calm_quantiles")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class CalmQuantilesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    POLICY_LOSS_FIELD_NUMBER: _ClassVar[int]
    KL_PENALTY_FIELD_NUMBER: _ClassVar[int]
    CALM_QUANTILES_FIELD_NUMBER: _ClassVar[int]
    name: str
    parameters: _containers.ScalarMap[str, float]
    policy_loss: PolicyLoss
    kl_penalty: KlPenalty
    calm_quantiles: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., policy_loss: _Optional[_Union[PolicyLoss, _Mapping]] = ..., kl_penalty: _Optional[_Union[KlPenalty, _Mapping]] = ..., calm_quantiles: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Dialect(_message.Message):
    __slots__ = ("system", "block", "ignore_unknown_fields", "release")
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    IGNORE_UNKNOWN_FIELDS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    system: str
    block: _struct_pb2.Struct
    ignore_unknown_fields: bool
    release: str
    def __init__(self, system: _Optional[str] = ..., block: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., ignore_unknown_fields: bool = ..., release: _Optional[str] = ...) -> None: ...

class CorrectionConfig(_message.Message):
    __slots__ = ("importance_weight", "rules", "rule_evaluation", "drift_source", "policy_loss", "kl_penalty", "sequence_filter")
    IMPORTANCE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    RULE_EVALUATION_FIELD_NUMBER: _ClassVar[int]
    DRIFT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    POLICY_LOSS_FIELD_NUMBER: _ClassVar[int]
    KL_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FILTER_FIELD_NUMBER: _ClassVar[int]
    importance_weight: ImportanceWeight
    rules: _containers.RepeatedCompositeFieldContainer[RejectionRule]
    rule_evaluation: RuleEvaluation
    drift_source: RatioSource
    policy_loss: PolicyLoss
    kl_penalty: KlPenalty
    sequence_filter: SequenceFilter
    def __init__(self, importance_weight: _Optional[_Union[ImportanceWeight, _Mapping]] = ..., rules: _Optional[_Iterable[_Union[RejectionRule, _Mapping]]] = ..., rule_evaluation: _Optional[_Union[RuleEvaluation, str]] = ..., drift_source: _Optional[_Union[RatioSource, str]] = ..., policy_loss: _Optional[_Union[PolicyLoss, _Mapping]] = ..., kl_penalty: _Optional[_Union[KlPenalty, _Mapping]] = ..., sequence_filter: _Optional[_Union[SequenceFilter, _Mapping]] = ...) -> None: ...

class SequenceFilter(_message.Message):
    __slots__ = ("ratio_source", "upper")
    RATIO_SOURCE_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    ratio_source: RatioSource
    upper: float
    def __init__(self, ratio_source: _Optional[_Union[RatioSource, str]] = ..., upper: _Optional[float] = ...) -> None: ...

class ImportanceWeight(_message.Message):
    __slots__ = ("ratio_source", "level", "token_clamp", "aggregate_clamp", "bound", "lower", "upper", "normalize", "after_rule", "upper_calm_quantile")
    RATIO_SOURCE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_CLAMP_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_CLAMP_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    AFTER_RULE_FIELD_NUMBER: _ClassVar[int]
    UPPER_CALM_QUANTILE_FIELD_NUMBER: _ClassVar[int]
    ratio_source: RatioSource
    level: Level
    token_clamp: float
    aggregate_clamp: float
    bound: Bound
    lower: float
    upper: float
    normalize: bool
    after_rule: int
    upper_calm_quantile: float
    def __init__(self, ratio_source: _Optional[_Union[RatioSource, str]] = ..., level: _Optional[_Union[Level, str]] = ..., token_clamp: _Optional[float] = ..., aggregate_clamp: _Optional[float] = ..., bound: _Optional[_Union[Bound, str]] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., normalize: bool = ..., after_rule: _Optional[int] = ..., upper_calm_quantile: _Optional[float] = ...) -> None: ...

class RejectionRule(_message.Message):
    __slots__ = ("name", "ratio_source", "estimator", "aggregation", "token_clamp", "aggregate_clamp", "lower", "upper", "condition", "effect")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RATIO_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ESTIMATOR_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_CLAMP_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_CLAMP_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    name: str
    ratio_source: RatioSource
    estimator: Estimator
    aggregation: Aggregation
    token_clamp: float
    aggregate_clamp: float
    lower: float
    upper: float
    condition: RuleCondition
    effect: RuleEffect
    def __init__(self, name: _Optional[str] = ..., ratio_source: _Optional[_Union[RatioSource, str]] = ..., estimator: _Optional[_Union[Estimator, str]] = ..., aggregation: _Optional[_Union[Aggregation, str]] = ..., token_clamp: _Optional[float] = ..., aggregate_clamp: _Optional[float] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., condition: _Optional[_Union[RuleCondition, str]] = ..., effect: _Optional[_Union[RuleEffect, str]] = ...) -> None: ...

class PolicyLoss(_message.Message):
    __slots__ = ("surrogate", "ratio_source", "aggregation", "denominator", "clip_low", "clip_high", "dual_clip", "ratio_cap", "log_ratio_clamp", "tau_positive", "tau_negative", "k_positive", "lambda_positive", "k_negative", "lambda_negative", "beta", "covariance_fraction", "covariance_lower", "covariance_upper", "covariance_kl_weight", "norm_length", "allow_double_correction", "average_advantages")
    SURROGATE_FIELD_NUMBER: _ClassVar[int]
    RATIO_SOURCE_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    CLIP_LOW_FIELD_NUMBER: _ClassVar[int]
    CLIP_HIGH_FIELD_NUMBER: _ClassVar[int]
    DUAL_CLIP_FIELD_NUMBER: _ClassVar[int]
    RATIO_CAP_FIELD_NUMBER: _ClassVar[int]
    LOG_RATIO_CLAMP_FIELD_NUMBER: _ClassVar[int]
    TAU_POSITIVE_FIELD_NUMBER: _ClassVar[int]
    TAU_NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    K_POSITIVE_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_POSITIVE_FIELD_NUMBER: _ClassVar[int]
    K_NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    COVARIANCE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    COVARIANCE_LOWER_FIELD_NUMBER: _ClassVar[int]
    COVARIANCE_UPPER_FIELD_NUMBER: _ClassVar[int]
    COVARIANCE_KL_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NORM_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DOUBLE_CORRECTION_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_ADVANTAGES_FIELD_NUMBER: _ClassVar[int]
    surrogate: Surrogate
    ratio_source: RatioSource
    aggregation: LossAggregation
    denominator: LossDenominator
    clip_low: float
    clip_high: float
    dual_clip: float
    ratio_cap: float
    log_ratio_clamp: float
    tau_positive: float
    tau_negative: float
    k_positive: float
    lambda_positive: float
    k_negative: float
    lambda_negative: float
    beta: float
    covariance_fraction: float
    covariance_lower: float
    covariance_upper: float
    covariance_kl_weight: float
    norm_length: float
    allow_double_correction: bool
    average_advantages: bool
    def __init__(self, surrogate: _Optional[_Union[Surrogate, str]] = ..., ratio_source: _Optional[_Union[RatioSource, str]] = ..., aggregation: _Optional[_Union[LossAggregation, str]] = ..., denominator: _Optional[_Union[LossDenominator, str]] = ..., clip_low: _Optional[float] = ..., clip_high: _Optional[float] = ..., dual_clip: _Optional[float] = ..., ratio_cap: _Optional[float] = ..., log_ratio_clamp: _Optional[float] = ..., tau_positive: _Optional[float] = ..., tau_negative: _Optional[float] = ..., k_positive: _Optional[float] = ..., lambda_positive: _Optional[float] = ..., k_negative: _Optional[float] = ..., lambda_negative: _Optional[float] = ..., beta: _Optional[float] = ..., covariance_fraction: _Optional[float] = ..., covariance_lower: _Optional[float] = ..., covariance_upper: _Optional[float] = ..., covariance_kl_weight: _Optional[float] = ..., norm_length: _Optional[float] = ..., allow_double_correction: bool = ..., average_advantages: bool = ...) -> None: ...

class KlPenalty(_message.Message):
    __slots__ = ("estimator", "coefficient", "token_clamp", "value_clamp", "straight_through", "importance_weighted")
    ESTIMATOR_FIELD_NUMBER: _ClassVar[int]
    COEFFICIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_CLAMP_FIELD_NUMBER: _ClassVar[int]
    VALUE_CLAMP_FIELD_NUMBER: _ClassVar[int]
    STRAIGHT_THROUGH_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    estimator: KlEstimator
    coefficient: float
    token_clamp: float
    value_clamp: float
    straight_through: bool
    importance_weighted: bool
    def __init__(self, estimator: _Optional[_Union[KlEstimator, str]] = ..., coefficient: _Optional[float] = ..., token_clamp: _Optional[float] = ..., value_clamp: _Optional[float] = ..., straight_through: bool = ..., importance_weighted: bool = ...) -> None: ...

class MethodInfo(_message.Message):
    __slots__ = ("name", "origin", "origin_name", "summary", "reference", "config", "parameters", "formula", "when_to_use", "equivalents")
    class EquivalentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_NAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    FORMULA_FIELD_NUMBER: _ClassVar[int]
    WHEN_TO_USE_FIELD_NUMBER: _ClassVar[int]
    EQUIVALENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    origin: str
    origin_name: str
    summary: str
    reference: str
    config: CorrectionConfig
    parameters: _containers.RepeatedCompositeFieldContainer[ParameterInfo]
    formula: str
    when_to_use: str
    equivalents: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., origin: _Optional[str] = ..., origin_name: _Optional[str] = ..., summary: _Optional[str] = ..., reference: _Optional[str] = ..., config: _Optional[_Union[CorrectionConfig, _Mapping]] = ..., parameters: _Optional[_Iterable[_Union[ParameterInfo, _Mapping]]] = ..., formula: _Optional[str] = ..., when_to_use: _Optional[str] = ..., equivalents: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ParameterInfo(_message.Message):
    __slots__ = ("name", "unit", "default_value", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    unit: str
    default_value: float
    description: str
    def __init__(self, name: _Optional[str] = ..., unit: _Optional[str] = ..., default_value: _Optional[float] = ..., description: _Optional[str] = ...) -> None: ...
