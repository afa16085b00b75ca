package counterweight

import pb "github.com/counterweight/counterweight/client/go/counterweightv1"

// Surrogates of policy losses; kernels/README.md has their formulas and papers.
const (
	SurrogatePPOClip            = pb.Surrogate_SURROGATE_PPO_CLIP
	SurrogateGSPO               = pb.Surrogate_SURROGATE_GSPO
	SurrogateGSPOToken          = pb.Surrogate_SURROGATE_GSPO_TOKEN
	SurrogateCISPO              = pb.Surrogate_SURROGATE_CISPO
	SurrogateSAPO               = pb.Surrogate_SURROGATE_SAPO
	SurrogateReinforce          = pb.Surrogate_SURROGATE_REINFORCE
	SurrogateGPG                = pb.Surrogate_SURROGATE_GPG
	SurrogateDRO                = pb.Surrogate_SURROGATE_DRO
	SurrogateDPPOTV             = pb.Surrogate_SURROGATE_DPPO_TV
	SurrogateDPPOKL             = pb.Surrogate_SURROGATE_DPPO_KL
	SurrogateGeoMean            = pb.Surrogate_SURROGATE_GEO_MEAN
	SurrogateLUSPO              = pb.Surrogate_SURROGATE_LUSPO
	SurrogateVESPO              = pb.Surrogate_SURROGATE_VESPO
	SurrogateRolloutIS          = pb.Surrogate_SURROGATE_ROLLOUT_IS
	SurrogateKLCov              = pb.Surrogate_SURROGATE_KL_COV
	SurrogateClipCov            = pb.Surrogate_SURROGATE_CLIP_COV
	SurrogateCrossEntropy       = pb.Surrogate_SURROGATE_CROSS_ENTROPY
	SurrogateImportanceSampling = pb.Surrogate_SURROGATE_IMPORTANCE_SAMPLING
)

// Aggregations of policy losses.
const (
	// TokenMean is the sum over tokens divided by their number.
	TokenMean = pb.LossAggregation_LOSS_AGGREGATION_TOKEN_MEAN
	// TokenSum is the sum over tokens.
	TokenSum = pb.LossAggregation_LOSS_AGGREGATION_TOKEN_SUM
	// SeqMeanTokenSum is the row sums, averaged over rows.
	SeqMeanTokenSum = pb.LossAggregation_LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM
	// SeqMeanTokenMean is the row means, averaged over rows.
	SeqMeanTokenMean = pb.LossAggregation_LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN
	// SeqMeanTokenSumNorm is the row sums divided by NormLength, averaged over rows.
	SeqMeanTokenSumNorm = pb.LossAggregation_LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM
)

// Denominators of policy losses.
const (
	// DenominatorOriginal is the tokens (sequences) of ResponseMask.
	DenominatorOriginal = pb.LossDenominator_LOSS_DENOMINATOR_ORIGINAL
	// DenominatorKept is those that the rules kept.
	DenominatorKept = pb.LossDenominator_LOSS_DENOMINATOR_KEPT
	// DenominatorGlobal is those of WithGlobalCounts.
	DenominatorGlobal = pb.LossDenominator_LOSS_DENOMINATOR_GLOBAL
)

// Estimators of KL penalties.
const (
	// KLEstimatorK1 is l.
	KLEstimatorK1 = pb.KlEstimator_KL_ESTIMATOR_K1
	// KLEstimatorK2 is l^2 / 2.
	KLEstimatorK2 = pb.KlEstimator_KL_ESTIMATOR_K2
	// KLEstimatorK3 is exp(-l) - 1 + l.
	KLEstimatorK3 = pb.KlEstimator_KL_ESTIMATOR_K3
	// KLEstimatorAbs is |l|.
	KLEstimatorAbs = pb.KlEstimator_KL_ESTIMATOR_ABS
)
