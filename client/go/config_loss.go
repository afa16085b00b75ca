package counterweight

import pb "github.com/counterweight/counterweight/client/go/counterweightv1"

// A LossConfig is a policy loss; PolicyLoss makes it. Its methods return a changed copy.
type LossConfig struct{ set []func(*pb.PolicyLoss) }

// PolicyLoss is the policy loss and, if the gradient is requested, d loss /
// d CurrentLogProbs.
func PolicyLoss(surrogate Surrogate, aggregation LossAggregation, denominator LossDenominator) LossConfig {
	return LossConfig{}.with(func(l *pb.PolicyLoss) {
		l.Surrogate, l.Aggregation, l.Denominator = surrogate, aggregation, denominator
	})
}

// Ratio is that of the surrogate. Without it: RatioCurrentOld, or RatioCurrentRollout when
// there are no old log-probs.
func (l LossConfig) Ratio(source RatioSource) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.RatioSource = source })
}

// Clip bounds the ratio by 1 - low and 1 + high, both >= 0. Surrogates that clip need it.
func (l LossConfig) Clip(low, high float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.ClipLow, l.ClipHigh = &low, &high })
}

// DualClip makes the loss at most -A * limit where the advantage A is < 0; > 1.
func (l LossConfig) DualClip(limit float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.DualClip = &limit })
}

// RatioCap makes the unclipped ratio at most limit (two-sided clip); > 0.
func (l LossConfig) RatioCap(limit float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.RatioCap = &limit })
}

// LogRatioClamp clamps the policy log ratio to [-nats, nats] before exp; > 0.
func (l LossConfig) LogRatioClamp(nats float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.LogRatioClamp = &nats })
}

// Tau are SAPO's temperatures for A > 0 and A <= 0; > 0.
func (l LossConfig) Tau(positive, negative float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.TauPositive, l.TauNegative = &positive, &negative })
}

// PositiveShape is VESPO's for A >= 0.
func (l LossConfig) PositiveShape(k, lambda float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.KPositive, l.LambdaPositive = &k, &lambda })
}

// NegativeShape is VESPO's for A < 0.
func (l LossConfig) NegativeShape(k, lambda float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.KNegative, l.LambdaNegative = &k, &lambda })
}

// Beta is DRO's weight of the quadratic term; > 0.
func (l LossConfig) Beta(beta float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.Beta = &beta })
}

// CovarianceFraction is the share of tokens that KL-Cov and Clip-Cov select, in (0, 1].
func (l LossConfig) CovarianceFraction(share float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.CovarianceFraction = &share })
}

// CovarianceInterval has Clip-Cov's candidates strictly between its ends.
func (l LossConfig) CovarianceInterval(lower, upper float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.CovarianceLower, l.CovarianceUpper = &lower, &upper })
}

// CovarianceKLWeight is KL-Cov's weight of |log ratio| on the selected tokens; >= 0.
func (l LossConfig) CovarianceKLWeight(weight float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.CovarianceKlWeight = &weight })
}

// NormLength divides each row's sum with SeqMeanTokenSumNorm; > 0. Without it: the padded
// width.
func (l LossConfig) NormLength(positions float64) LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.NormLength = &positions })
}

// AllowDoubleCorrection applies the importance weight although the surrogate's own ratio
// already corrects the same drift.
func (l LossConfig) AllowDoubleCorrection() LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.AllowDoubleCorrection = true })
}

func (l LossConfig) with(set func(*pb.PolicyLoss)) LossConfig {
	return LossConfig{appended(l.set, set)}
}

func (l LossConfig) addToConfig(config *pb.CorrectionConfig) { config.PolicyLoss = made(l.set) }

func (l LossConfig) addToPreset(preset *pb.Preset) { preset.PolicyLoss = made(l.set) }

// A KLConfig is a KL penalty; KLPenalty makes it. Its methods return a changed copy.
type KLConfig struct{ set []func(*pb.KlPenalty) }

// KLPenalty is coefficient * aggregate(k(l)), l = current - ref, inside the policy loss;
// coefficient >= 0.
func KLPenalty(estimator KLEstimator, coefficient float64) KLConfig {
	return KLConfig{}.with(func(k *pb.KlPenalty) { k.Estimator, k.Coefficient = estimator, coefficient })
}

// TokenClamp clamps l to [-nats, nats] before the formula; > 0.
func (k KLConfig) TokenClamp(nats float64) KLConfig {
	return k.with(func(k *pb.KlPenalty) { k.TokenClamp = &nats })
}

// ValueClamp clamps the value after the formula, with gradient 0 outside; > 0.
func (k KLConfig) ValueClamp(nats float64) KLConfig {
	return k.with(func(k *pb.KlPenalty) { k.ValueClamp = &nats })
}

// StraightThrough takes the value of the estimator with the gradient of K2.
func (k KLConfig) StraightThrough() KLConfig {
	return k.with(func(k *pb.KlPenalty) { k.StraightThrough = true })
}

// ImportanceWeighted multiplies by the policy ratio, gradient through it included.
func (k KLConfig) ImportanceWeighted() KLConfig {
	return k.with(func(k *pb.KlPenalty) { k.ImportanceWeighted = true })
}

func (k KLConfig) with(set func(*pb.KlPenalty)) KLConfig { return KLConfig{appended(k.set, set)} }

func (k KLConfig) addToConfig(config *pb.CorrectionConfig) { config.KlPenalty = made(k.set) }

func (k KLConfig) addToPreset(preset *pb.Preset) { preset.KlPenalty = made(k.set) }

// AverageAdvantages replaces each advantage by the mean over the kept tokens of its sequence.
// For SurrogateGSPO, SurrogateGSPOToken and SurrogateLUSPO.
func (l LossConfig) AverageAdvantages() LossConfig {
	return l.with(func(l *pb.PolicyLoss) { l.AverageAdvantages = true })
}
