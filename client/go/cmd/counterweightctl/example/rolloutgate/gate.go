package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/counterweight/counterweight/client/go/cmd/counterweightctl/drift"
)

// A gate holds an inference engine's admission of new rollouts while the returned ones
// are too far from the policy that trains on them.
type gate struct {
	// metrics is the address of the server's page for Prometheus, run the run to look at.
	metrics, run string
	// pause and resume are what the engine takes a POST at. With vLLM: /pause and /resume.
	pause, resume string
	// low and high are effective sample sizes, shares of a batch's tokens: below low the
	// engine is paused, from high on it goes on. Between them it stays as it is.
	low, high float64

	paused  bool
	batches float64
}

// look looks once. A batch is judged once: without new ones nothing changes.
func (g *gate) look(ctx context.Context) error {
	runs, err := drift.Read(ctx, g.metrics)
	if err != nil {
		return err
	}
	run := runs[g.run]
	size, there := run.EffectiveSampleSize()
	if !there || run.Batches() == g.batches {
		return nil
	}
	switch {
	case size < g.low && !g.paused:
		err = post(ctx, g.pause)
	case size >= g.high && g.paused:
		err = post(ctx, g.resume)
	default:
		g.batches = run.Batches()
		return nil
	}
	if err != nil {
		return err // and the same batch is judged again
	}
	g.paused, g.batches = !g.paused, run.Batches()
	log.Printf("run %s, batch %.0f: effective sample size %.3f, paused %t", g.run, g.batches, size, g.paused)
	return nil
}

// watch looks until the context ends, and lets the engine go on then.
func (g *gate) watch(ctx context.Context, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		// The engine stays as it is while the server does not answer.
		if err := g.lookFor(ctx, interval); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if !g.paused {
				return nil
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			return post(last, g.resume)
		}
	}
}

// patience is what one look, or the last word to the engine, may take.
const patience = 10 * time.Second

func (g *gate) lookFor(ctx context.Context, interval time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, max(interval, patience))
	defer cancel()
	return g.look(ctx)
}

func post(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return fmt.Errorf("the engine: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("the engine: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the engine: %s answers %s", address, answer.Status)
	}
	return nil
}
