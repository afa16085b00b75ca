package counterweight

import pb "github.com/counterweight/counterweight/client/go/counterweightv1"

// A WeightConfig is an importance weight; ImportanceWeight makes it. Its methods return a
// changed copy.
type WeightConfig struct{ set []func(*pb.ImportanceWeight) }

// ImportanceWeight is w = bound(exp(clamp(level(clamp(l_t))))), l_t the token's log ratio.
// BoundTruncate and BoundMask need Lower, Upper or both.
func ImportanceWeight(source RatioSource, level Level, bound Bound) WeightConfig {
	return WeightConfig{}.with(func(w *pb.ImportanceWeight) {
		w.RatioSource, w.Level, w.Bound = source, level, bound
	})
}

// Lower is the lower end of the interval, inclusive, a ratio >= 0.
func (w WeightConfig) Lower(ratio float64) WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.Lower = &ratio })
}

// Upper is the upper end, inclusive, a ratio > 0 and >= Lower.
func (w WeightConfig) Upper(ratio float64) WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.Upper = &ratio })
}

// CalmUpper is the upper end from the run's own calm steps, as the type CalmUpper; Upper is
// that of the steps before.
func (w WeightConfig) CalmUpper(quantile float64) WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.UpperCalmQuantile = &quantile })
}

// TokenClamp clamps each token's log ratio to [-nats, nats] before aggregation; > 0.
func (w WeightConfig) TokenClamp(nats float64) WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.TokenClamp = &nats })
}

// AggregateClamp clamps the aggregated log ratio likewise; > 0.
func (w WeightConfig) AggregateClamp(nats float64) WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.AggregateClamp = &nats })
}

// Normalize divides bounded weights by their mean over the batch (LevelToken, LevelPrefix,
// LevelTurn: over tokens; LevelSequence, LevelGeometric: over sequences), unless that mean is <= 1e-8.
func (w WeightConfig) Normalize() WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.Normalize = true })
}

// AfterRule lets the aggregate see the mask that the first rules left, from 0, the
// response mask, to the number of rules.
func (w WeightConfig) AfterRule(rules uint32) WeightConfig {
	return w.with(func(w *pb.ImportanceWeight) { w.AfterRule = &rules })
}

func (w WeightConfig) with(set func(*pb.ImportanceWeight)) WeightConfig {
	return WeightConfig{appended(w.set, set)}
}

func (w WeightConfig) addToConfig(config *pb.CorrectionConfig) {
	config.ImportanceWeight = made(w.set)
}

// A RuleConfig is a rejection rule; RejectionRule makes it. Its methods return a changed
// copy.
type RuleConfig struct{ set []func(*pb.RejectionRule) }

// RejectionRule keeps a token if lower <= aggregation(estimator(clamp(l_t))) <= upper. It
// needs Lower, Upper or both.
func RejectionRule(source RatioSource, estimator Estimator, aggregation Aggregation) RuleConfig {
	return RuleConfig{}.with(func(r *pb.RejectionRule) {
		r.RatioSource, r.Estimator, r.Aggregation = source, estimator, aggregation
	})
}

// Lower is the lower end of the keep interval, inclusive. EstimatorRatio: a ratio >= 0,
// compared in logs; EstimatorK2 and EstimatorK3: nats.
func (r RuleConfig) Lower(end float64) RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.Lower = &end })
}

// Upper is the upper end, inclusive, >= Lower.
func (r RuleConfig) Upper(end float64) RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.Upper = &end })
}

// TokenClamp clamps each token's log ratio to [-nats, nats] before the estimator; > 0.
func (r RuleConfig) TokenClamp(nats float64) RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.TokenClamp = &nats })
}

// AggregateClamp clamps the aggregated statistic likewise; EstimatorRatio only.
func (r RuleConfig) AggregateClamp(nats float64) RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.AggregateClamp = &nats })
}

// Name is what metrics and summaries call the rule, [a-z0-9_]{1,64}. Without it:
// aggregation and estimator, as in "mean_k3".
func (r RuleConfig) Name(name string) RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.Name = name })
}

// OnlyNegativeAdvantages applies the rule where the advantage is < 0 (OPSM); it needs
// Batch.Advantages.
func (r RuleConfig) OnlyNegativeAdvantages() RuleConfig {
	return r.Where(RuleConditionNegativeAdvantage)
}

// Where applies the rule where the condition holds; those of advantages need
// Batch.Advantages.
func (r RuleConfig) Where(condition RuleCondition) RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.Condition = condition })
}

// ZeroWeight makes the weight 0 instead of dropping the token: keep mask and denominators
// stay. It needs an importance weight.
func (r RuleConfig) ZeroWeight() RuleConfig {
	return r.with(func(r *pb.RejectionRule) { r.Effect = pb.RuleEffect_RULE_EFFECT_ZERO_WEIGHT })
}

func (r RuleConfig) with(set func(*pb.RejectionRule)) RuleConfig {
	return RuleConfig{appended(r.set, set)}
}

func (r RuleConfig) addToConfig(config *pb.CorrectionConfig) {
	config.Rules = append(config.Rules, made(r.set))
}

// appended leaves the original as it is: two configurations may begin with the same steps.
func appended[F any](steps []F, step F) []F {
	return append(steps[:len(steps):len(steps)], step)
}

// made is a new message that went through all steps.
func made[M any](steps []func(*M)) *M {
	message := new(M)
	for _, step := range steps {
		step(message)
	}
	return message
}
