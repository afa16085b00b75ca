package counterweight

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

func wireOf(t *testing.T, method Method) *pb.Method {
	t.Helper()
	message, violations := method.message()
	if violations != nil {
		t.Fatal(violations)
	}
	return message
}

func everything() []ConfigPart {
	return []ConfigPart{
		ImportanceWeight(RatioOldRollout, LevelToken, BoundTruncate).
			Lower(0.5).Upper(2).CalmUpper(0.999).TokenClamp(20).AggregateClamp(10).Normalize().AfterRule(1),
		RejectionRule(RatioCurrentRollout, EstimatorRatio, AggregationMean).Lower(0.9).Upper(1.1).
			TokenClamp(20).AggregateClamp(10).Name("mine").OnlyNegativeAdvantages().Where(RuleConditionPositiveAdvantage).ZeroWeight(),
		Sequential(),
		DriftSource(RatioCurrentOld),
		SequenceFilter(RatioOldRollout, 2),
		PolicyLoss(SurrogatePPOClip, SeqMeanTokenSumNorm, DenominatorGlobal).Ratio(RatioCurrentOld).
			AverageAdvantages().Clip(0.2, 0.3).DualClip(3).RatioCap(10).LogRatioClamp(20).Tau(1, 2).PositiveShape(1, 2).
			NegativeShape(3, 4).Beta(0.5).CovarianceFraction(0.1).CovarianceInterval(1, 5).
			CovarianceKLWeight(1).NormLength(1000).AllowDoubleCorrection(),
		KLPenalty(KLEstimatorK3, 0.1).TokenClamp(20).ValueClamp(10).StraightThrough().ImportanceWeighted(),
	}
}

// absent lists the fields of a message, and of those in it, that are not set.
func absent(message protoreflect.Message) (names []string) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case !message.Has(field):
			names = append(names, string(field.FullName()))
		case field.IsList():
			names = append(names, absent(message.Get(field).List().Get(0).Message())...)
		case field.Message() != nil:
			names = append(names, absent(message.Get(field).Message())...)
		}
	}
	return names
}

func TestEveryFieldOfAConfigurationCanBeSpelledOut(t *testing.T) {
	config := wireOf(t, Config(everything()...)).GetConfig()
	if names := absent(config.ProtoReflect()); names != nil {
		t.Errorf("nothing sets %v", names)
	}
	want := `{"importanceWeight": {"ratioSource": "RATIO_SOURCE_OLD_ROLLOUT", "level": "LEVEL_TOKEN",
		"tokenClamp": 20, "aggregateClamp": 10, "bound": "BOUND_TRUNCATE", "lower": 0.5, "upper": 2,
		"normalize": true, "afterRule": 1, "upperCalmQuantile": 0.999}}`
	expected := &pb.CorrectionConfig{}
	if err := protojson.Unmarshal([]byte(want), expected); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(config.GetImportanceWeight(), expected.GetImportanceWeight()) {
		t.Errorf("the weight is %v", config.GetImportanceWeight())
	}
	loss := config.GetPolicyLoss()
	if loss.GetClipLow() != 0.2 || loss.GetClipHigh() != 0.3 || loss.GetTauNegative() != 2 ||
		loss.GetKNegative() != 3 || loss.GetLambdaPositive() != 2 || loss.GetCovarianceUpper() != 5 {
		t.Errorf("the loss is %v", loss)
	}
}

func TestStepsOfAConfigurationLeaveEarlierOnesAsTheyAre(t *testing.T) {
	first := RejectionRule(RatioOldRollout, EstimatorK3, AggregationMean).Upper(1)
	second, third := first.Name("second"), first.Name("third")
	rules := wireOf(t, Config(first, second, third)).GetConfig().GetRules()
	if rules[0].GetName() != "" || rules[1].GetName() != "second" || rules[2].GetName() != "third" {
		t.Errorf("%v", rules)
	}
}

func TestAPresetHasParametersAndALoss(t *testing.T) {
	preset := wireOf(t, Preset("token_tis", Parameters{"upper": 3},
		PolicyLoss(SurrogatePPOClip, TokenMean, DenominatorKept), KLPenalty(KLEstimatorK1, 0.5))).GetPreset()
	if preset.GetName() != "token_tis" || preset.GetParameters()["upper"] != 3 ||
		preset.GetPolicyLoss().GetDenominator() != DenominatorKept || preset.GetKlPenalty().GetCoefficient() != 0.5 {
		t.Errorf("%v", preset)
	}
}

func TestABlockOfYAMLIsTheSameAsAMap(t *testing.T) {
	type name string
	fromYAML, err := DialectYAML("verl", []byte("a: 1\nb: [x, null, true]\nc: {d: 1.5}\n"), Release("0.9.1"), IgnoreUnknownFields())
	if err != nil {
		t.Fatal(err)
	}
	fromMap := Dialect("verl", map[string]any{
		"a": uint8(1), "b": []any{name("x"), nil, true}, "c": map[name]float32{"d": 1.5},
	}, Release("0.9.1"), IgnoreUnknownFields())
	if !proto.Equal(wireOf(t, fromYAML), wireOf(t, fromMap)) {
		t.Errorf("%v is not %v", wireOf(t, fromYAML), wireOf(t, fromMap))
	}
	dialect := wireOf(t, fromMap).GetDialect()
	if dialect.GetRelease() != "0.9.1" || !dialect.GetIgnoreUnknownFields() || dialect.GetSystem() != "verl" {
		t.Errorf("%v", dialect)
	}
	fromJSON := Dialect("verl", map[string]any{"a": json.Number("0.25"), "e": []string{"f"}})
	if wireOf(t, fromJSON).GetDialect().GetBlock().GetFields()["a"].GetNumberValue() != 0.25 {
		t.Errorf("%v", wireOf(t, fromJSON))
	}
	for _, none := range []map[string]any{nil, {}} {
		if wireOf(t, Dialect("trl", none)).GetDialect().GetBlock() == nil {
			t.Error("there is no block")
		}
	}
}

func TestWhatIsNoBlockIsAnError(t *testing.T) {
	for _, text := range []string{"a: [", "- a", "word"} {
		if _, err := DialectYAML("verl", []byte(text)); err == nil || !strings.Contains(err.Error(), "the block of verl") {
			t.Errorf("%q: %v", text, err)
		}
	}
	endless := map[string]any{}
	endless["again"] = endless
	for want, block := range map[string]map[string]any{
		"method.dialect.block.a":       {"a": func() {}},
		"method.dialect.block.b.c[0]":  {"b": map[string]any{"c": []any{make(chan int)}}},
		"method.dialect.block.d":       {"d": map[int]string{1: "x"}},
		"method.dialect.block.again.a": endless,
	} {
		_, violations := Dialect("verl", block).message()
		if len(violations) != 1 || !strings.HasPrefix(violations[0].Field, want) {
			t.Errorf("%v instead of %s", violations, want)
		}
	}
}

func TestACountOfZeroIsSentAndAnAbsentOneIsNot(t *testing.T) {
	c := &call{}
	WithGlobalCounts(GlobalCounts{Tokens: Count[int64](0), SelectionScope: SelectionScopeCall})(c)
	counts := c.head.GlobalCounts
	if counts.NumTokens == nil || *counts.NumTokens != 0 || counts.NumSequences != nil {
		t.Errorf("sent %v", counts)
	}
	if counts.SelectionScope != pb.SelectionScope_SELECTION_SCOPE_CALL {
		t.Errorf("sent the scope %v", counts.SelectionScope)
	}
}
