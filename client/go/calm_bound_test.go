package counterweight_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// oneRow has n tokens with the log ratio 0.25 in one of four, else 0.
func oneRow(n int) *cw.Batch {
	batch := &cw.Batch{
		SequenceLengths: []int64{int64(n)}, ResponseMask: make([]byte, n),
		RolloutLogProbs: make([]float32, n), OldLogProbs: make([]float32, n),
	}
	for i := range n {
		batch.ResponseMask[i], batch.RolloutLogProbs[i], batch.OldLogProbs[i] = 1, -1, -1
		if i%4 == 0 {
			batch.OldLogProbs[i] = -0.75
		}
	}
	return batch
}

func TestABoundOfTheRunsCalmSteps(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	// The clamp is that of token_tis, so that both have one calm level.
	config := cw.Config(cw.ImportanceWeight(cw.RatioOldRollout, cw.LevelToken, cw.BoundTruncate).
		Upper(2).CalmUpper(0.9).TokenClamp(20))
	preset := cw.Preset("token_tis", cw.CalmUpper(0.9), cw.Parameters{"upper": 2})
	for step := range int64(10) {
		method, field := preset, "method.preset.calm_quantiles[upper]"
		if step%2 == 1 {
			method, field = config, "method.config.importance_weight.upper_calm_quantile"
		}
		result, err := client.Correct(background(t), oneRow(100), method, cw.Run("go"), cw.Step(step))
		if err != nil || len(result.ResolvedBounds) != 1 {
			t.Fatalf("got %v %v", result, err)
		}
		want := cw.ResolvedBound{Field: field, Value: 2, CalmSteps: min(step, 8), CalmWeights: 100 * min(step, 8)}
		if step >= 8 {
			// The end of the quarter octave that 0.25 is in: its own.
			want.IsCalm, want.Value = true, math.Exp(0.25)
		}
		got := result.ResolvedBounds[0]
		if math.Abs(got.Value-want.Value) < 1e-14 {
			got.Value = want.Value
		}
		if got != want {
			t.Errorf("step %d: got %+v, want %+v", step, got, want)
		}
	}
	_, err := client.Correct(background(t), oneRow(100), cw.Preset("token_tis", cw.CalmUpper(0.9)))
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) || len(invalid.Violations) != 2 || invalid.Violations[0].Field != "labels.run" {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatDoesNotKnowCalmBoundsIsAnError(t *testing.T) {
	server := &fakeserver.Server{
		OnCorrect: func(_ context.Context, request *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			return maskAnswer(request), nil
		},
	}
	client := dial(t, server.Start(t))
	_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis", cw.CalmUpper(0.9)))
	if err == nil || !strings.Contains(err.Error(), "calm_bounds") {
		t.Errorf("got %v", err)
	}
}
