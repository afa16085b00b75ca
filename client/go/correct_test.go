package counterweight_test

import (
	"errors"
	"math"
	"reflect"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestThreeTokensHaveTheWeightsOfTheContractsReadme(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	result, err := client.Correct(background(t), threeTokens(),
		cw.Preset("token_tis", cw.Parameters{"upper": 1.05}), cw.RequestID("three"), cw.Run("go"))
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{1.05, float32(math.Exp(float64(float32(-2.1)) + 2)), 0}
	for i := range want {
		if math.Abs(float64(result.Weights[i]-want[i])) > 1e-6 {
			t.Errorf("weight %d is %v, not %v", i, result.Weights[i], want[i])
		}
	}
	if !reflect.DeepEqual(result.KeepMask, []uint8{1, 1, 0}) {
		t.Errorf("the keep mask is %v", result.KeepMask)
	}
	if result.RequestID != "three" || result.Backend == "" || result.NumericsVersion == 0 {
		t.Errorf("the answer does not say where it comes from: %+v", result)
	}
	if result.HasLoss || result.Gradient != nil || result.TokenReasons != nil {
		t.Errorf("there is more than was asked for: %+v", result)
	}
	if kl := result.Metrics["kl"]; math.Abs(kl) > 1e-6 {
		t.Errorf("the mean log ratio of 0.1 and -0.1 is %v", kl)
	}
	if result.Metrics["tokens"] != 2 {
		t.Errorf("the metrics count %v tokens", result.Metrics["tokens"])
	}
}

func TestPackedAndPaddedBatchesHaveTheSameBytes(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	padded := twoLogProbs(7, 13)
	packed := *padded
	packed.Shape = [2]int{}
	packed.SequenceLengths = []int64{13, 13, 13, 13, 13, 13, 13}
	method := cw.Preset("geo_rs_token_tis")
	first, err := client.Correct(background(t), padded, method)
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Correct(background(t), &packed, method)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first.Arrays, second.Arrays) {
		t.Error("the layouts have different answers")
	}
}

func TestResultsLandInTheSlicesThatAreGiven(t *testing.T) {
	server := servertest.Start(t)
	batch := randomBatch(5, 11)
	method := cw.Config(
		cw.ImportanceWeight(cw.RatioOldRollout, cw.LevelToken, cw.BoundTruncate).Upper(1.1),
		cw.RejectionRule(cw.RatioOldRollout, cw.EstimatorK3, cw.AggregationMax).Upper(0.02),
		cw.PolicyLoss(cw.SurrogatePPOClip, cw.TokenMean, cw.DenominatorKept).Clip(0.2, 0.28),
		cw.KLPenalty(cw.KLEstimatorK3, 0.1),
	)
	all := cw.Outputs(cw.OutputGradient, cw.OutputKeepMask, cw.OutputWeights,
		cw.OutputTokenReasons, cw.OutputSequenceReasons)
	for _, transport := range []cw.Transport{cw.Unary, cw.Stream} {
		client := dial(t, server.Address, cw.WithTransport(transport), cw.WithChunkBytes(7))
		fresh, err := client.Correct(background(t), batch, method, all)
		if err != nil {
			t.Fatal(err)
		}
		into := cw.Arrays{
			Weights: make([]float32, 55), KeepMask: make([]uint8, 55), Gradient: make([]float32, 55),
			TokenReasons: make([]uint16, 55), SequenceReasons: make([]uint16, 5),
		}
		given, err := client.Correct(background(t), batch, method, all, cw.Into(into))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(fresh.Arrays, into) {
			t.Errorf("%v: the slices that were given have other numbers than new ones", transport)
		}
		if &given.Weights[0] != &into.Weights[0] || &given.Gradient[0] != &into.Gradient[0] {
			t.Errorf("%v: the result's slices are not those that were given", transport)
		}
		if !given.HasLoss || given.Loss != fresh.Loss || given.Rules[0].DroppedTokens == 0 {
			t.Errorf("%v: loss %v, rules %v", transport, given.Loss, given.Rules)
		}
	}
}

func TestOnlyTheLossIsAskedFor(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := randomBatch(3, 4)
	method := cw.Config(cw.PolicyLoss(cw.SurrogateReinforce, cw.TokenMean, cw.DenominatorOriginal))
	result, err := client.Correct(background(t), batch, method, cw.Outputs(cw.OutputLoss), cw.WithoutMetrics())
	if err != nil {
		t.Fatal(err)
	}
	var sum, count float64
	for i, counts := range batch.ResponseMask {
		if counts == 1 {
			sum -= float64(batch.CurrentLogProbs[i]) * float64(batch.Advantages[i])
			count++
		}
	}
	if !result.HasLoss || math.Abs(result.Loss-sum/count) > 1e-6 {
		t.Errorf("the loss is %v, not %v", result.Loss, sum/count)
	}
	if !reflect.DeepEqual(result.Arrays, cw.Arrays{}) || result.Metrics != nil {
		t.Errorf("there is more than the loss: %+v", result)
	}
}

func TestADialectWithWhatALossNeedsHasOne(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	block := []byte("rollout_is: token\nrollout_is_threshold: 2.0\npolicy_loss: {loss_mode: vanilla}\n")
	method, err := cw.DialectYAML("verl", block, cw.Release("0.9.1"))
	if err != nil {
		t.Fatal(err)
	}
	batch := randomBatch(3, 4)
	batch.RefLogProbs = nil
	result, err := client.Correct(background(t), batch, method)
	if err != nil {
		t.Fatal(err)
	}
	if !result.HasLoss || result.Gradient == nil || result.Metrics["rollout_corr/kl"] == 0 {
		t.Errorf("loss %v, gradient %v, metrics %v", result.Loss, result.Gradient, result.Metrics)
	}
}

func TestAnEmptyBatchHasAnAnswer(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	for _, batch := range []*cw.Batch{
		{Shape: [2]int{0, 4}, RolloutLogProbs: []float32{}, OldLogProbs: []float32{}},
		{SequenceLengths: []int64{}, RolloutLogProbs: []float32{}, OldLogProbs: []float32{}},
	} {
		for _, transport := range []cw.Transport{cw.Unary, cw.Stream} {
			result, err := client.Correct(background(t), batch, cw.Preset("token_tis"), cw.Via(transport))
			if err != nil {
				t.Errorf("%v: %v", transport, err)
			} else if len(result.Weights) != 0 || len(result.KeepMask) != 0 {
				t.Errorf("%v: %+v", transport, result.Arrays)
			}
		}
	}
}

func TestTheServerTellsAboutItself(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	ctx := background(t)
	info, err := client.ServerInfo(ctx)
	if err != nil || info.GetLimits().GetMaxMessageBytes() == 0 || len(info.GetDialects()) < 4 {
		t.Errorf("%v, %v", info, err)
	}
	methods, err := client.ListMethods(ctx)
	if err != nil || len(methods) < 50 {
		t.Errorf("%d methods, %v", len(methods), err)
	}
	if health, err := client.Health(ctx); err != nil || health != cw.Serving {
		t.Errorf("health is %v, %v", health, err)
	}
	// ListMethods spells a method out as a configuration that gives the same answer.
	for _, method := range methods {
		if method.GetName() == "token_tis" {
			byName, err := client.Correct(ctx, threeTokens(), cw.Preset("token_tis"))
			if err != nil {
				t.Fatal(err)
			}
			spelledOut, err := client.Correct(ctx, threeTokens(), cw.ConfigMessage(method.GetConfig()))
			if err != nil || !reflect.DeepEqual(byName.Arrays, spelledOut.Arrays) {
				t.Errorf("%v: %v and %v", err, byName, spelledOut)
			}
		}
	}
}

func TestStalenessIsSplitByTheVersionsOfTokens(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := twoLogProbs(5, 40)
	for i := range batch.ResponseMask {
		batch.ResponseMask[i] = 1
	}
	spans := *batch
	batch.PolicyVersions = make([]int32, 200)
	for i := range batch.PolicyVersions {
		batch.PolicyVersions[i] = -1
	}
	for sequence, version := range []int64{20, 19, 17, 0} {
		spans.VersionSpans = append(spans.VersionSpans, cw.VersionSpan{
			Sequence: int64(sequence), Start: 10, End: 40, PolicyVersion: version,
		})
		for i := 10; i < 40; i++ {
			batch.PolicyVersions[40*sequence+i] = int32(version)
		}
	}
	var first *cw.Staleness
	for _, batch := range []*cw.Batch{batch, &spans} {
		for _, way := range []cw.Transport{cw.Unary, cw.Stream} {
			result, err := client.Correct(
				background(t), batch, cw.Preset("token_tis"), cw.PolicyVersion(20), cw.Via(way))
			if err != nil {
				t.Fatal(err)
			}
			if result.Staleness == nil {
				t.Fatal("the answer has no staleness")
			}
			for i := range result.Staleness.Buckets {
				// NaN is not equal to itself.
				if bucket := &result.Staleness.Buckets[i]; bucket.Tokens == 0 {
					bucket.KL, bucket.K3 = 0, 0
				}
			}
			if first == nil {
				first = result.Staleness
			} else if !reflect.DeepEqual(first, result.Staleness) {
				t.Errorf("%+v is not %+v", result.Staleness, first)
			}
		}
	}
	tokens := []int64{30, 30, 0, 30, 0, 30}
	for i, bucket := range first.Buckets {
		if bucket.Tokens != tokens[i] {
			t.Errorf("bucket %+v does not have %d tokens", bucket, tokens[i])
		}
	}
	if last := first.Buckets[5]; last.First != 9 || last.Last != -1 {
		t.Errorf("the last bucket is %+v", last)
	}
	if first.UnknownTokens != 80 || first.Mean != 6 || first.Max != 20 {
		t.Errorf("%+v", first)
	}
	_, err := client.Correct(background(t), batch, cw.Preset("token_tis"), cw.PolicyVersion(18))
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) || invalid.Violations[0].Field != "tensors[POLICY_VERSIONS]" {
		t.Errorf("a version of the future is %v", err)
	}
	result, err := client.Correct(background(t), twoLogProbs(5, 40), cw.Preset("token_tis"))
	if err != nil || result.Staleness != nil {
		t.Errorf("without versions: %v, %+v", err, result.Staleness)
	}
}

func TestARangeOfStalenessHasTheLabelOfPrometheus(t *testing.T) {
	for want, bucket := range map[string]cw.StalenessBucket{
		"2": {First: 2, Last: 2}, "3-4": {First: 3, Last: 4}, "9+": {First: 9, Last: -1},
	} {
		if got := bucket.Label(); got != want {
			t.Errorf("%+v is %q, not %q", bucket, got, want)
		}
	}
}
