package counterweight_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// numParts is the place of the number of parts, the one of Sums that depends on the partition.
const numParts = 1

// raggedBatch has everything that a loss needs, and sizes at which the order of addition would matter.
func raggedBatch(sequences, length int) *cw.Batch {
	random := rand.New(rand.NewPCG(3, 4))
	batch := randomBatch(sequences, length)
	batch.RefLogProbs = nil
	for i := range batch.OldLogProbs {
		size := math.Pow(10, 7*random.Float64()-6)
		batch.OldLogProbs[i] = min(0, batch.RolloutLogProbs[i]+float32(size*random.NormFloat64()))
		if i/length%7 == 0 {
			batch.ResponseMask[i] = 0
		}
	}
	return batch
}

// rowsOf is the part of a padded batch with these rows.
func rowsOf(batch *cw.Batch, rows []int) *cw.Batch {
	length := batch.Shape[1]
	part := &cw.Batch{
		Shape:           [2]int{len(rows), length},
		ResponseMask:    pick(batch.ResponseMask, rows, length),
		RolloutLogProbs: pick(batch.RolloutLogProbs, rows, length),
		OldLogProbs:     pick(batch.OldLogProbs, rows, length),
		CurrentLogProbs: pick(batch.CurrentLogProbs, rows, length),
		Advantages:      pick(batch.Advantages, rows, length),
	}
	if batch.PolicyVersions != nil {
		part.PolicyVersions = pick(batch.PolicyVersions, rows, length)
	}
	return part
}

func pick[E any](values []E, rows []int, length int) []E {
	picked := make([]E, 0, len(rows)*length)
	for _, row := range rows {
		picked = append(picked, values[row*length:(row+1)*length]...)
	}
	return picked
}

// split is the rows of each of three parts, in an order of their own; the second one is empty.
func split(sequences int, seed uint64) [][]int {
	random := rand.New(rand.NewPCG(seed, 5))
	rows := random.Perm(sequences)
	cut := 1 + random.IntN(sequences-1)
	return [][]int{rows[:cut], nil, rows[cut:]}
}

func correct(t *testing.T, client *cw.Client, batch *cw.Batch, method cw.Method, options ...cw.Option) *cw.Result {
	t.Helper()
	result, err := client.Correct(background(t), batch, method, append(options, cw.WithPartialSums())...)
	if err != nil {
		t.Fatal(err)
	}
	if result.Sums == nil {
		t.Fatal("the answer has no sums")
	}
	return result
}

func merge(t *testing.T, client *cw.Client, parts ...*cw.PartialSums) *cw.PartialSums {
	t.Helper()
	merged, err := client.MergeSums(background(t), parts)
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func metricsOf(t *testing.T, client *cw.Client, sums *cw.PartialSums, method cw.Method) *cw.StepTotals {
	t.Helper()
	totals, err := client.MetricsOf(background(t), sums, method)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

func sameBits(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

func expectSameSums(t *testing.T, name string, merged, whole *cw.PartialSums) {
	t.Helper()
	have := slices.Clone(merged.Sums)
	if len(have) == len(whole.Sums) {
		have[numParts] = whole.Sums[numParts]
	}
	if !slices.EqualFunc(have, whole.Sums, sameBits) || !slices.EqualFunc(merged.Maxima, whole.Maxima, sameBits) {
		t.Errorf("%s: merged sums have other bytes than those of one call", name)
	}
}

func expectSameAnswer(t *testing.T, name string, totals *cw.StepTotals, whole *cw.Result) {
	t.Helper()
	if len(totals.Metrics) != len(whole.Metrics) {
		t.Errorf("%s: there are %d metrics, not %d", name, len(totals.Metrics), len(whole.Metrics))
	}
	for metric, want := range whole.Metrics {
		if have, ok := totals.Metrics[metric]; !ok || !sameBits(have, want) {
			t.Errorf("%s: %s is %v, not %v", name, metric, have, want)
		}
	}
	if totals.HasLoss != whole.HasLoss || !sameBits(totals.Loss, whole.Loss) {
		t.Errorf("%s: the loss is %v, not %v", name, totals.Loss, whole.Loss)
	}
	if !reflect.DeepEqual(totals.Rules, whole.Rules) || totals.NonFiniteTokens != whole.NonFiniteTokens {
		t.Errorf("%s: the rules did %v, not %v", name, totals.Rules, whole.Rules)
	}
	if !reflect.DeepEqual(totals.Staleness, whole.Staleness) {
		t.Errorf("%s: staleness is %+v, not %+v", name, totals.Staleness, whole.Staleness)
	}
	for _, warning := range totals.Warnings {
		if !slices.Contains(whole.Warnings, warning) {
			t.Errorf("%s: the warning %q is not the call's", name, warning)
		}
	}
}

func ppo(denominator cw.LossDenominator) cw.Method {
	return cw.Config(
		cw.ImportanceWeight(cw.RatioOldRollout, cw.LevelSequence, cw.BoundTruncate).Upper(2),
		cw.RejectionRule(cw.RatioOldRollout, cw.EstimatorK3, cw.AggregationMean).Upper(0.5),
		cw.PolicyLoss(cw.SurrogatePPOClip, cw.TokenMean, denominator).Clip(0.2, 0.28),
	)
}

func TestMergedSumsHaveTheBytesOfOneCall(t *testing.T) {
	server := servertest.StartUnix(t)
	batch := raggedBatch(23, 61)
	dialect, err := cw.DialectYAML("verl", []byte("rollout_is: token\nrollout_is_threshold: 2.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, method := range map[string]cw.Method{
		"token_tis":        cw.Preset("token_tis"),
		"geo_rs_token_tis": cw.Preset("geo_rs_token_tis", cw.Parameters{"keep_lower": 0.5}),
		"ppo":              ppo(cw.DenominatorKept),
		"verl":             dialect,
	} {
		for _, transport := range []cw.Transport{cw.Unary, cw.Stream, cw.SharedMemory} {
			name := name + " by " + transport.String()
			client := dial(t, server.Address, cw.WithTransport(transport))
			whole := correct(t, client, batch, method, cw.WithoutLoss())
			if whole.HasLoss || whole.Gradient != nil {
				t.Errorf("%s: there is a loss", name)
			}
			expectSameAnswer(t, name, metricsOf(t, client, whole.Sums, method), whole)
			var parts []*cw.PartialSums
			for _, rows := range split(23, uint64(transport)) {
				parts = append(parts, correct(t, client, rowsOf(batch, rows), method, cw.WithoutLoss()).Sums)
			}
			merged := merge(t, client, parts...)
			expectSameSums(t, name, merged, whole.Sums)
			expectSameSums(t, name, merge(t, client, parts[2], merge(t, client, parts[1], parts[0])), whole.Sums)
			expectSameAnswer(t, name, metricsOf(t, client, merged, method), whole)
		}
	}
}

func TestAnAllReduceMergesSums(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch, method := raggedBatch(23, 61), cw.Preset("token_tis")
	whole := correct(t, client, batch, method)
	var added *cw.PartialSums
	for _, rows := range split(23, 9) {
		part := correct(t, client, rowsOf(batch, rows), method).Sums
		if added == nil {
			added = part
			continue
		}
		for i, number := range part.Sums {
			added.Sums[i] += number
		}
		for i, number := range part.Maxima {
			added.Maxima[i] = max(added.Maxima[i], number)
		}
	}
	expectSameSums(t, "added", merge(t, client, added), whole.Sums)
	expectSameAnswer(t, "added", metricsOf(t, client, added, method), whole)
}

func TestStalenessOfAStepIsMerged(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch, method := raggedBatch(23, 61), cw.Preset("token_tis")
	batch.PolicyVersions = make([]int32, len(batch.ResponseMask))
	for i := range batch.PolicyVersions {
		batch.PolicyVersions[i] = int32(i % 13) // each bucket has a token, so none has a NaN
	}
	whole := correct(t, client, batch, method, cw.PolicyVersion(12))
	var parts []*cw.PartialSums
	for _, rows := range split(23, 11) {
		parts = append(parts, correct(t, client, rowsOf(batch, rows), method, cw.PolicyVersion(12)).Sums)
	}
	merged := merge(t, client, parts...)
	expectSameSums(t, "with versions", merged, whole.Sums)
	expectSameAnswer(t, "with versions", metricsOf(t, client, merged, method), whole)
}

// The first pass counts the step; the second one divides by its counts, so that losses add up.
func TestLossesOfPartsAddUpWithTheCountsOfTheStep(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := raggedBatch(23, 61)
	parts := split(23, 13)
	for denominator, method := range map[string]cw.Method{
		"original": ppo(cw.DenominatorOriginal), "kept": ppo(cw.DenominatorKept),
	} {
		var first []*cw.PartialSums
		for _, rows := range parts {
			first = append(first, correct(t, client, rowsOf(batch, rows), method, cw.WithoutLoss()).Sums)
		}
		totals := metricsOf(t, client, merge(t, client, first...), method)
		if totals.CountsRefusal != "" || totals.Counts == nil {
			t.Fatalf("%s: no counts: %q", denominator, totals.CountsRefusal)
		}
		if (totals.Counts.Tokens == nil) == (totals.Counts.KeptTokens == nil) {
			t.Errorf("%s: the counts are %+v", denominator, totals.Counts)
		}
		counts := cw.WithGlobalCounts(*totals.Counts)
		whole := correct(t, client, batch, method, counts)
		var second []*cw.PartialSums
		for _, rows := range parts {
			part := correct(t, client, rowsOf(batch, rows), method, counts)
			if !slices.Equal(part.Gradient, pick(whole.Gradient, rows, batch.Shape[1])) {
				t.Errorf("%s: a part's gradient is another one than the step's", denominator)
			}
			second = append(second, part.Sums)
		}
		merged := merge(t, client, second...)
		expectSameSums(t, denominator, merged, whole.Sums)
		expectSameAnswer(t, denominator, metricsOf(t, client, merged, method), whole)
	}
}

func TestWeightsAreNormalizedByTheMeanOfTheStep(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := raggedBatch(23, 61)
	batch.CurrentLogProbs, batch.Advantages = nil, nil
	method := cw.Config(
		cw.ImportanceWeight(cw.RatioOldRollout, cw.LevelToken, cw.BoundTruncate).Upper(2).Normalize())
	whole := correct(t, client, batch, method)
	totals := metricsOf(t, client, whole.Sums, method)
	mean := whole.Metrics["weight_normalizer"]
	if want := (&cw.GlobalCounts{WeightMean: &mean}); !reflect.DeepEqual(totals.Counts, want) {
		t.Fatalf("the counts are %+v, not %+v", totals.Counts, want)
	}
	again := correct(t, client, batch, method, cw.WithGlobalCounts(*totals.Counts))
	if !slices.Equal(again.Weights, whole.Weights) {
		t.Error("the weights divided by their own mean are other ones")
	}
	both := cw.GlobalCounts{WeightMean: &mean, WeightSum: &mean}
	_, err := client.Correct(background(t), batch, method, cw.WithGlobalCounts(both))
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) || invalid.Violations[0].Field != "global_counts.weight_mean" {
		t.Errorf("both forms of the mean: %v", err)
	}
}

func TestSumsThatDoNotAddUpAreRefusedByName(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch, tis := raggedBatch(23, 61), cw.Preset("token_tis")
	good := correct(t, client, batch, tis).Sums
	other := correct(t, client, batch, cw.Preset("token_tis", cw.Parameters{"upper": 3})).Sums
	longer := correct(t, client, batch, cw.Preset("geo_rs_token_tis")).Sums
	loss := correct(t, client, batch, ppo(cw.DenominatorOriginal)).Sums
	forged := &cw.PartialSums{Sums: slices.Clone(good.Sums), Maxima: good.Maxima}
	forged.Sums[numParts] = -1
	mergeOf := func(parts ...*cw.PartialSums) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.MergeSums(ctx, parts)
			return err
		}
	}
	of := func(sums *cw.PartialSums, method cw.Method) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.MetricsOf(ctx, sums, method)
			return err
		}
	}
	for name, tt := range map[string]struct {
		call  func(context.Context) error
		field string
		words string
	}{
		"no part":         {mergeOf(), "parts", "is required"},
		"parameters":      {mergeOf(good, other), "parts", "are not of one method"},
		"lengths":         {mergeOf(good, longer), "parts[1]", "other lengths than parts[0]"},
		"forged":          {mergeOf(good, forged), "parts[1].sums", "is none that this service makes"},
		"nil":             {mergeOf(good, nil), "parts[1]", "is nil"},
		"empty":           {mergeOf(&cw.PartialSums{}), "parts[0].maxima", "is none that this service makes"},
		"another method":  {of(good, cw.Preset("seq_tis")), "method", "is not the method of parts"},
		"no method":       {of(good, nil), "MetricsOf", "needs a method"},
		"no sums":         {of(nil, tis), "parts[0]", "is nil"},
		"a broken method": {of(good, cw.Preset("no such preset")), "method", "is not the method of parts"},
		"losses": {
			of(merge(t, client, loss, loss), ppo(cw.DenominatorOriginal)), "parts", "global_counts or omit_loss",
		},
	} {
		err := tt.call(background(t))
		var invalid *cw.InvalidRequestError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		found := slices.ContainsFunc(invalid.Violations, func(v cw.Violation) bool {
			return v.Field == tt.field && strings.Contains(v.Description, tt.words)
		})
		if !found {
			t.Errorf("%s: no violation of %s with %q: %v", name, tt.field, tt.words, err)
		}
	}
	_, err := client.Correct(background(t), batch, ppo(cw.DenominatorOriginal), cw.WithoutLoss(),
		cw.Outputs(cw.OutputGradient, cw.OutputLoss))
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) || len(invalid.Violations) != 2 {
		t.Errorf("a loss and none: %v", err)
	}
}

func TestWhatIsAskedForTravels(t *testing.T) {
	server := &fakeserver.Server{
		OnCorrect: func(_ context.Context, request *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			return maskAnswer(request), nil
		},
	}
	client := dial(t, server.Start(t))
	mean := 0.5
	result, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"), cw.Step(0),
		cw.WithPartialSums(), cw.WithoutLoss(), cw.WithGlobalCounts(cw.GlobalCounts{WeightMean: &mean}))
	if err != nil || result.Sums != nil {
		t.Errorf("%v: sums are made up: %v", err, result)
	}
	if _, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
	asked, plain := server.Requests()[0], server.Requests()[1]
	if !asked.GetPartialSums() || !asked.GetOmitLoss() || asked.GetLabels().Step == nil ||
		asked.GetGlobalCounts().GetWeightMean() != mean {
		t.Errorf("the request is %v", asked)
	}
	if plain.GetPartialSums() || plain.GetOmitLoss() || plain.GetLabels() != nil || plain.GetGlobalCounts() != nil {
		t.Errorf("a request without options is %v", plain)
	}
}

func TestAMergeIsTriedAgainAndItsAnswerIsChecked(t *testing.T) {
	whole := &pb.MergeSumsResponse{
		Sums:   &pb.PartialSums{Sums: []float64{1, math.Inf(1)}, Maxima: []float64{math.NaN()}},
		Answer: &pb.CorrectResponse{},
	}
	var answers []*pb.MergeSumsResponse // nil: no server
	calls := 0
	server := &fakeserver.Server{
		OnMerge: func(request *pb.MergeSumsRequest) (*pb.MergeSumsResponse, error) {
			answer := answers[calls]
			calls++
			if len(request.GetParts()) != 1 || request.GetParts()[0].GetSums()[1] != -0.5 {
				return nil, status.Error(codes.InvalidArgument, "the parts are other ones")
			}
			if answer == nil {
				return nil, status.Error(codes.Unavailable, "it drains")
			}
			return answer, nil
		},
	}
	client := dial(t, server.Start(t))
	part := &cw.PartialSums{Sums: []float64{1, -0.5}, Maxima: []float64{math.Inf(-1)}}
	for name, tt := range map[string]struct {
		answers []*pb.MergeSumsResponse
		code    codes.Code
	}{
		"tried again": {[]*pb.MergeSumsResponse{nil, whole}, codes.OK},
		"no sums":     {[]*pb.MergeSumsResponse{{Answer: whole.GetAnswer()}}, codes.Internal},
		"no answer":   {[]*pb.MergeSumsResponse{{Sums: whole.GetSums()}}, codes.Internal},
	} {
		answers, calls = tt.answers, 0
		totals, err := client.MetricsOf(background(t), part, cw.Preset("token_tis"))
		if status.Code(err) != tt.code || calls != len(tt.answers) {
			t.Errorf("%s: %v after %d attempts", name, err, calls)
		}
		if err == nil && (!math.IsInf(totals.Sums.Sums[1], 1) || !math.IsNaN(totals.Sums.Maxima[0])) {
			t.Errorf("%s: %+v", name, totals.Sums)
		}
	}
	old := dial(t, (&fakeserver.Server{}).Start(t))
	if _, err := old.MergeSums(background(t), []*cw.PartialSums{part}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a server without the feature: %v", err)
	}
}
