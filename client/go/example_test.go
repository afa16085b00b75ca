package counterweight_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	counterweight "github.com/counterweight/counterweight/client/go"
)

// batch has two sequences of three positions; the last position of the second is padding.
func batch() *counterweight.Batch {
	return &counterweight.Batch{
		Shape:           [2]int{2, 3},
		RolloutLogProbs: []float32{-1, -2, -0.5, -0.25, -1, 0},
		OldLogProbs:     []float32{-0.9, -2.1, -0.5, -0.25, -3, 0},
		ResponseMask:    []uint8{1, 1, 1, 1, 1, 0},
	}
}

func Example() {
	client, err := counterweight.New("localhost:50051")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	result, err := client.Correct(ctx, batch(), counterweight.Preset("token_tis"), counterweight.Run("my-run"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Weights, result.KeepMask, result.Metrics["effective_sample_size"])
}

func ExampleClient_Correct_errors() {
	client, err := counterweight.New("unix:/run/counterweight/cw.sock")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.Correct(context.Background(), batch(), counterweight.Preset("token_tis"))
	var invalid *counterweight.InvalidRequestError
	var overloaded *counterweight.OverloadedError
	switch {
	case errors.As(err, &invalid):
		for _, violation := range invalid.Violations {
			log.Println(violation.Field, violation.Description)
		}
	case errors.As(err, &overloaded) && overloaded.Retryable:
		time.Sleep(overloaded.RetryAfter)
	case errors.Is(err, counterweight.ErrUnavailable):
		log.Println("no server: ", err)
	case errors.Is(err, context.DeadlineExceeded):
		log.Println("too slow: ", err)
	}
}

func ExampleInto() {
	client, err := counterweight.New("unix:/run/counterweight/cw.sock")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	arrays := counterweight.Arrays{Weights: make([]float32, 6), KeepMask: make([]uint8, 6)}
	for range 3 { // the arrays are allocated once for all steps
		if _, err := client.Correct(context.Background(), batch(), counterweight.Preset("token_tis"),
			counterweight.Into(arrays)); err != nil {
			log.Fatal(err)
		}
	}
}

// The first pass counts the step, and the second one computes losses that add up.
func ExampleClient_MetricsOf() {
	client, err := counterweight.New("localhost:50051")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	method := counterweight.Preset("token_tis_ppo_clip")
	var parts []*counterweight.PartialSums // of micro-batches, or of ranks
	for range 2 {
		part, err := client.Correct(ctx, batch(), method, counterweight.WithPartialSums(), counterweight.WithoutLoss())
		if err != nil {
			log.Fatal(err)
		}
		parts = append(parts, part.Sums)
	}
	sums, err := client.MergeSums(ctx, parts) // or an all-reduce
	if err != nil {
		log.Fatal(err)
	}
	totals, err := client.MetricsOf(ctx, sums, method)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(totals.Metrics["effective_sample_size"])
	_ = counterweight.WithGlobalCounts(*totals.Counts) // for the calls that compute losses
}

func ExampleConfig() {
	method := counterweight.Config(
		counterweight.ImportanceWeight(counterweight.RatioOldRollout, counterweight.LevelToken,
			counterweight.BoundTruncate).Upper(2),
		counterweight.RejectionRule(counterweight.RatioOldRollout, counterweight.EstimatorK3,
			counterweight.AggregationMean).Upper(0.001),
		counterweight.PolicyLoss(counterweight.SurrogatePPOClip, counterweight.TokenMean,
			counterweight.DenominatorOriginal).Clip(0.2, 0.28),
	)
	_ = method // for Client.Correct
}

func ExampleDialectYAML() {
	block := []byte("rollout_is: token\nrollout_is_threshold: 2.0\n") // as in the trainer's YAML
	method, err := counterweight.DialectYAML("verl", block, counterweight.Release("0.9.1"))
	if err != nil {
		log.Fatal(err)
	}
	_ = method // for Client.Correct
}

func ExampleAllocate() {
	client, err := counterweight.New("unix:/run/counterweight/cw.sock")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	rollout := counterweight.Allocate[float32](client, 6, counterweight.ForInput)
	defer rollout.Close()
	shared := batch()
	copy(rollout.Slice(), shared.RolloutLogProbs) // or let the inference engine write there
	shared.RolloutLogProbs = rollout.Slice()
	if _, err := client.Correct(context.Background(), shared, counterweight.Preset("token_tis"),
		counterweight.Via(counterweight.SharedMemory)); err != nil {
		log.Fatal(err)
	}
}

func ExampleWithTLS() {
	client, err := counterweight.New("counterweight.example.org:443",
		counterweight.WithTLS(counterweight.TLSFiles{RootCAs: "/etc/counterweight/ca.pem"}), // read again when it changes
		counterweight.WithTokenFile("/var/run/secrets/counterweight/token"))
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Close()
}
