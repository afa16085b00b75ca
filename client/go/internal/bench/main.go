// Bench measures Correct as a trainer in Go sees it, and prints one JSON object. It is a
// part of the project's benchmarks (tests/benchmark).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"syscall"
	"time"

	counterweight "github.com/counterweight/counterweight/client/go"
)

// bytesPerPosition are two float32 log-probs and a mask up, weights and the keep mask down.
const bytesPerPosition = 14

type result struct {
	Sequences int    `json:"sequences"`
	Length    int    `json:"length"`
	Transport string `json:"transport"`
	Calls     int    `json:"calls"`
	// Seconds of one call.
	Min float64 `json:"min_seconds"`
	P50 float64 `json:"p50_seconds"`
	P99 float64 `json:"p99_seconds"`
	// ProcessorSeconds are this process's of one call, of all its threads.
	ProcessorSeconds float64 `json:"processor_seconds"`
	// GigabytesPerSecond is of the quickest call, up and down together.
	GigabytesPerSecond float64 `json:"gigabytes_per_second"`
	// Allocations of one call and their bytes, gRPC's included.
	Allocations    float64 `json:"allocations"`
	AllocatedBytes float64 `json:"allocated_bytes"`
}

func main() {
	target := flag.String("target", "localhost:50051", "server")
	sequences := flag.Int("sequences", 64, "rows")
	length := flag.Int("length", 512, "positions of each row")
	transport := flag.String("transport", "auto", "auto, unary, stream or shared_memory")
	calls := flag.Int("calls", 100, "measured calls")
	profile := flag.String("cpuprofile", "", "file for pprof, of the measured calls and those before")
	flag.Parse()
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			log.Fatal(err)
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			log.Fatal(err)
		}
	}
	measured, err := measure(*target, *sequences, *length, *transport, *calls)
	if err != nil {
		log.Fatal(err)
	}
	pprof.StopCPUProfile()
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		log.Fatal(err)
	}
}

func measure(target string, sequences, length int, transport string, calls int) (*result, error) {
	way, err := counterweight.ParseTransport(transport)
	if err != nil {
		return nil, err
	}
	if sequences < 1 || length < 1 || calls < 1 {
		return nil, fmt.Errorf("sequences, length and calls must be at least 1")
	}
	client, err := counterweight.New(target, counterweight.WithTransport(way))
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	batch := randomBatch(sequences, length)
	into := counterweight.Into(counterweight.Arrays{
		Weights: make([]float32, len(batch.ResponseMask)), KeepMask: make([]uint8, len(batch.ResponseMask)),
	})
	outputs := counterweight.Outputs(counterweight.OutputWeights, counterweight.OutputKeepMask)
	method := counterweight.Preset("token_tis")
	correct := func() error {
		_, err := client.Correct(context.Background(), batch, method, into, outputs)
		return err
	}
	for range max(2, calls/10) { // connections and buffers exist then
		if err := correct(); err != nil {
			return nil, err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	times := make([]float64, calls)
	cpu := processorSeconds()
	for i := range times {
		begin := time.Now()
		if err := correct(); err != nil {
			return nil, err
		}
		times[i] = time.Since(begin).Seconds()
	}
	cpu = processorSeconds() - cpu
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	return &result{
		ProcessorSeconds: cpu / float64(calls),
		Sequences:        sequences, Length: length, Transport: transport, Calls: calls,
		Min: times[0], P50: times[calls/2], P99: times[calls*99/100],
		GigabytesPerSecond: 1e-9 * float64(bytesPerPosition*len(batch.ResponseMask)) / times[0],
		Allocations:        float64(after.Mallocs-before.Mallocs) / float64(calls),
		AllocatedBytes:     float64(after.TotalAlloc-before.TotalAlloc) / float64(calls),
	}, nil
}

func randomBatch(sequences, length int) *counterweight.Batch {
	random := rand.New(rand.NewPCG(1, 2))
	positions := sequences * length
	batch := &counterweight.Batch{
		Shape:           [2]int{sequences, length},
		RolloutLogProbs: make([]float32, positions),
		OldLogProbs:     make([]float32, positions),
		ResponseMask:    make([]uint8, positions),
	}
	for i := range positions {
		batch.RolloutLogProbs[i] = -random.Float32()
		batch.OldLogProbs[i] = batch.RolloutLogProbs[i] + 0.1*(random.Float32()-0.5)
		if random.Float32() < 0.9 {
			batch.ResponseMask[i] = 1
		}
	}
	return batch
}

// processorSeconds is what this process has computed so far, in the kernel too.
func processorSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return 1e-9 * float64(usage.Utime.Nano()+usage.Stime.Nano())
}
