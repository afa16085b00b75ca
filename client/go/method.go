package counterweight

import (
	"maps"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// A Method is what to compute: a Preset, a Config or a Dialect. It does not change, and
// may be used by any number of calls at once.
type Method interface {
	// message is the wire's form, which is not written to; or what cannot be on the wire.
	message() (*pb.Method, []Violation)
}

// methodMessage is a Method that is ready.
type methodMessage struct{ method *pb.Method }

func (m methodMessage) message() (*pb.Method, []Violation) { return m.method, nil }

// A PresetPart is what Preset takes beside the name: Parameters, PolicyLoss, KLPenalty.
type PresetPart interface{ addToPreset(*pb.Preset) }

// Parameters are values of a preset's parameters by name. Names, units, ranges and
// defaults are in MethodInfo.Parameters of Client.ListMethods.
type Parameters map[string]float64

func (p Parameters) addToPreset(preset *pb.Preset) {
	if preset.Parameters == nil {
		preset.Parameters = make(map[string]float64, len(p))
	}
	maps.Copy(preset.Parameters, p)
}

// CalmUpper is the parameter "upper" of a preset from the run's own calm steps: this
// quantile, in (0.5, 1), of the unbounded weights, within a quarter octave of their
// logarithm above it. For a batch with Run and Step. The first steps with it make
// the run's calm level, eight or more, and are bounded by the parameter "upper"; without it
// they are an InvalidRequestError. All later steps have the same bound, which
// Result.ResolvedBounds has. A server keeps it in memory, and each has its own.
type CalmUpper float64

func (u CalmUpper) addToPreset(preset *pb.Preset) {
	preset.CalmQuantiles = map[string]float64{"upper": float64(u)}
}

// Preset is a row of the methods table by name, with other numbers than its defaults where
// named, and with a loss that is computed with its weights and rules:
//
//	counterweight.Preset("token_tis", counterweight.Parameters{"upper": 3})
func Preset(name string, parts ...PresetPart) Method {
	preset := &pb.Preset{Name: name}
	for _, part := range parts {
		part.addToPreset(preset)
	}
	return methodMessage{&pb.Method{Method: &pb.Method_Preset{Preset: preset}}}
}

// A ConfigPart is what Config takes: ImportanceWeight, RejectionRule, PolicyLoss,
// KLPenalty, Sequential, DriftSource, SequenceFilter.
type ConfigPart interface {
	addToConfig(*pb.CorrectionConfig)
}

// Config is a method spelled out. Without a part there are no weights, no rules and no
// loss, only drift metrics. Rules are evaluated in the order in which they are given, and
// all must keep a token.
//
//	counterweight.Config(
//		counterweight.ImportanceWeight(counterweight.RatioOldRollout, counterweight.LevelToken,
//			counterweight.BoundTruncate).Upper(2),
//		counterweight.RejectionRule(counterweight.RatioOldRollout, counterweight.EstimatorK3,
//			counterweight.AggregationMean).Upper(0.001),
//	)
func Config(parts ...ConfigPart) Method {
	config := &pb.CorrectionConfig{}
	for _, part := range parts {
		part.addToConfig(config)
	}
	return ConfigMessage(config)
}

// ConfigMessage is a method spelled out by the contract's own message, as ListMethods has
// it. The message must not change any more.
func ConfigMessage(config *pb.CorrectionConfig) Method {
	return methodMessage{&pb.Method{Method: &pb.Method_Config{Config: config}}}
}

type configPart func(*pb.CorrectionConfig)

func (p configPart) addToConfig(config *pb.CorrectionConfig) { p(config) }

// Sequential lets each rule see what the earlier ones left. Without it every rule sees the
// response mask.
func Sequential() ConfigPart {
	return configPart(func(config *pb.CorrectionConfig) {
		config.RuleEvaluation = pb.RuleEvaluation_RULE_EVALUATION_SEQUENTIAL
	})
}

// SequenceFilter drops sequences before weights, rules and loss: a sequence counts as masked if
// the mean of exp(|l|) over its tokens is above upper, >= 1. l is a token's log ratio.
func SequenceFilter(source RatioSource, upper float64) ConfigPart {
	return configPart(func(config *pb.CorrectionConfig) {
		config.SequenceFilter = &pb.SequenceFilter{RatioSource: source, Upper: &upper}
	})
}

// DriftSource is the ratio of the drift metrics. Without it: RatioOldRollout
// if both are there, else RatioCurrentRollout, else RatioCurrentOld.
func DriftSource(source RatioSource) ConfigPart {
	return configPart(func(config *pb.CorrectionConfig) { config.DriftSource = source })
}
