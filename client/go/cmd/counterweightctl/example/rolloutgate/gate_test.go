package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	counterweight "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// batch has the log ratios a and -a in turn: the larger, the smaller the effective sample
// size.
func batch(a float32) *counterweight.Batch {
	const positions = 64
	made := &counterweight.Batch{
		Shape: [2]int{1, positions}, ResponseMask: make([]uint8, positions),
		RolloutLogProbs: make([]float32, positions), OldLogProbs: make([]float32, positions),
	}
	for i := range positions {
		made.ResponseMask[i], made.RolloutLogProbs[i] = 1, -10
		made.OldLogProbs[i] = -10 + a
		a = -a
	}
	return made
}

func TestTheEngineIsPausedWhileTheSampleSizeIsSmall(t *testing.T) {
	server := servertest.Start(t)
	client, err := counterweight.New(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	var posts []string
	fails := false
	engine := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if fails {
			writer.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		posts = append(posts, request.Method+" "+request.URL.Path)
	}))
	defer engine.Close()
	gate := &gate{
		metrics: server.MetricsURL, run: "gated", pause: engine.URL + "/pause", resume: engine.URL + "/resume",
		low: 0.6, high: 0.9,
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	step := func(a float32, want ...string) {
		t.Helper()
		method := counterweight.Preset("token_tis", counterweight.Parameters{"upper": 1000})
		if _, err := client.Correct(ctx, batch(a), method, counterweight.Run("gated")); err != nil {
			t.Fatal(err)
		}
		if err := gate.look(ctx); (err != nil) != fails {
			t.Fatalf("the look returns %v", err)
		}
		if len(posts) != len(want) {
			t.Fatalf("after a drift of %v the engine got %v", a, posts)
		}
		for i := range want {
			if posts[i] != want[i] {
				t.Fatalf("after a drift of %v the engine got %v", a, posts)
			}
		}
	}
	if err := gate.look(ctx); err != nil || gate.paused {
		t.Fatalf("without a batch: %v", err)
	}
	// The effective sample size of weights e^a and e^-a is cosh(a)^2 / cosh(2a).
	step(0)                  // 1
	step(0.6)                // 0.78: between the bounds, and the engine runs
	step(2, "POST /pause")   // 0.52
	step(0.6, "POST /pause") // between the bounds, and it waits
	step(2, "POST /pause")   // it waits already
	fails = true             // the engine is not reached
	step(0.1, "POST /pause") // 0.99
	fails = false            // and receives the command as soon as it is
	if err := gate.look(ctx); err != nil || gate.paused {
		t.Fatalf("the engine is reached again: %v", err)
	}
	step(0, "POST /pause", "POST /resume")

	// A gate that ends lets the engine go on.
	step(2, "POST /pause", "POST /resume", "POST /pause")
	done, stop := context.WithCancel(ctx)
	stop()
	if err := gate.watch(done, time.Second); err != nil {
		t.Error(err)
	}
	if len(posts) != 4 || posts[3] != "POST /resume" {
		t.Errorf("at the end the engine got %v", posts)
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for _, wrong := range []*gate{{}, {run: "a", low: 0.9, high: 0.1}, {run: "a", low: -1, high: 0.1}, {run: "a", low: 0.1, high: 2}} {
		if check(wrong, time.Second) == nil {
			t.Errorf("%+v is right", wrong)
		}
	}
	if right := (&gate{run: "a", low: 0.1, high: 0.2}); check(right, time.Second) != nil || check(right, 0) == nil {
		t.Errorf("%+v", right)
	}
}
