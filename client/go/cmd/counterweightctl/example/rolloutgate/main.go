// Rolloutgate is an example: it pauses an inference engine's admission when the effective
// sample size of a run falls, and lets it go on when it has recovered.
//
//	go run ./example/rolloutgate --run=my-run --engine=http://localhost:8000
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	gate := &gate{}
	flag.StringVar(&gate.metrics, "metrics", "http://localhost:9464/metrics", "address of the server's metrics")
	flag.StringVar(&gate.run, "run", "", "run to look at")
	engine := flag.String("engine", "http://localhost:8000", "address of the engine; it takes a POST at /pause and /resume")
	flag.Float64Var(&gate.low, "pause-below", 0.3, "effective sample size, a share of the tokens, below which the engine is paused")
	flag.Float64Var(&gate.high, "resume-from", 0.6, "effective sample size from which it goes on")
	interval := flag.Duration("interval", time.Second, "pause between two looks")
	flag.Parse()
	if err := check(gate, *interval); err != nil {
		log.Fatal(err)
	}
	gate.pause, gate.resume = *engine+"/pause", *engine+"/resume"
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := gate.watch(ctx, *interval); err != nil {
		log.Print(err)
	}
}

func check(gate *gate, interval time.Duration) error {
	switch {
	case gate.run == "":
		return fmt.Errorf("rolloutgate: needs --run")
	case !(0 <= gate.low && gate.low <= gate.high && gate.high <= 1):
		return fmt.Errorf("rolloutgate: 0 <= --pause-below <= --resume-from <= 1 must hold; got %v and %v", gate.low, gate.high)
	case interval <= 0:
		return fmt.Errorf("rolloutgate: --interval must be above 0; got %v", interval)
	}
	return nil
}
