package counterweight

import pb "github.com/counterweight/counterweight/client/go/counterweightv1"

// The choices that methods are made of, under shorter names than the contract's.
type (
	// RatioSource says which log-probs make the log ratio, numerator first.
	RatioSource = pb.RatioSource
	// Level says over which tokens log ratios are aggregated.
	Level = pb.Level
	// Bound says what happens to a weight outside of the interval; equality keeps.
	Bound = pb.Bound
	// Estimator is a token's contribution to a statistic; l is the log ratio.
	Estimator = pb.Estimator
	// Aggregation says how a rule's statistic is made of its tokens' contributions.
	Aggregation = pb.Aggregation
	// Surrogate is the pointwise policy objective; kernels/README.md has formulas and papers.
	Surrogate = pb.Surrogate
	// LossAggregation says how token losses become one number.
	LossAggregation = pb.LossAggregation
	// LossDenominator says which count a mean divides by.
	LossDenominator = pb.LossDenominator
	// KLEstimator is the function of a KL penalty; l = current - ref.
	KLEstimator = pb.KlEstimator
	// NonFinitePolicy says what to do about a NaN or an infinity where ResponseMask is 1.
	NonFinitePolicy = pb.NonFinitePolicy
)

// Log ratios.
const (
	// RatioOldRollout is old - rollout: engine mismatch and staleness (decoupled).
	RatioOldRollout = pb.RatioSource_RATIO_SOURCE_OLD_ROLLOUT
	// RatioCurrentRollout is current - rollout: the same and the update (bypass).
	RatioCurrentRollout = pb.RatioSource_RATIO_SOURCE_CURRENT_ROLLOUT
	// RatioCurrentOld is current - old: the update (PPO).
	RatioCurrentOld = pb.RatioSource_RATIO_SOURCE_CURRENT_OLD
)

// Levels of importance weights.
const (
	// LevelToken is each token's own ratio.
	LevelToken = pb.Level_LEVEL_TOKEN
	// LevelSequence is the product of ratios over the sequence.
	LevelSequence = pb.Level_LEVEL_SEQUENCE
	// LevelGeometric is their geometric mean.
	LevelGeometric = pb.Level_LEVEL_GEOMETRIC
	// LevelPrefix is the geometric mean up to and with the token.
	LevelPrefix = pb.Level_LEVEL_PREFIX
)

// Bounds of importance weights.
const (
	// BoundNone takes no interval.
	BoundNone = pb.Bound_BOUND_NONE
	// BoundTruncate takes the nearest end (TIS).
	BoundTruncate = pb.Bound_BOUND_TRUNCATE
	// BoundMask makes the weight 0; keep mask and denominators stay (IcePop, MIS).
	BoundMask = pb.Bound_BOUND_MASK
)

// Estimators of rejection rules.
const (
	// EstimatorRatio is l, the interval given as ratios.
	EstimatorRatio = pb.Estimator_ESTIMATOR_RATIO
	// EstimatorK2 is l^2 / 2, nats.
	EstimatorK2 = pb.Estimator_ESTIMATOR_K2
	// EstimatorK3 is exp(l) - 1 - l, nats.
	EstimatorK3 = pb.Estimator_ESTIMATOR_K3
	// EstimatorBinaryKL is the KL divergence of "this token or another one", nats.
	EstimatorBinaryKL = pb.Estimator_ESTIMATOR_BINARY_KL
	// EstimatorTotalVariation is the difference of the token's probabilities, in [0, 1].
	EstimatorTotalVariation = pb.Estimator_ESTIMATOR_TOTAL_VARIATION
)

// Aggregations of rejection rules.
const (
	// AggregationToken takes each token by itself.
	AggregationToken = pb.Aggregation_AGGREGATION_TOKEN
	// AggregationSum is the sum over the sequence.
	AggregationSum = pb.Aggregation_AGGREGATION_SUM
	// AggregationMean is the mean over the sequence.
	AggregationMean = pb.Aggregation_AGGREGATION_MEAN
	// AggregationMax is the largest of the sequence, 0 for an empty one.
	AggregationMax = pb.Aggregation_AGGREGATION_MAX
	// AggregationAll keeps the sequence if every token is inside.
	AggregationAll = pb.Aggregation_AGGREGATION_ALL
	// AggregationPrefixMean is the mean up to and with the token.
	AggregationPrefixMean = pb.Aggregation_AGGREGATION_PREFIX_MEAN
)

// The policies for non-finite numbers.
const (
	// NonFiniteReject is an InvalidRequestError that names tensor, sequence and token of the
	// first one.
	NonFiniteReject = pb.NonFinitePolicy_NON_FINITE_POLICY_REJECT
	// NonFiniteDrop treats the token as if ResponseMask were 0; it is counted.
	NonFiniteDrop = pb.NonFinitePolicy_NON_FINITE_POLICY_DROP
	// NonFiniteNeutralize makes the token's log ratio 0 (ratio 1); it is counted.
	NonFiniteNeutralize = pb.NonFinitePolicy_NON_FINITE_POLICY_NEUTRALIZE
)
