package counterweight_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// allocated is how many allocations a call makes, gRPC's goroutines included, and their
// bytes: the least of some rounds.
func allocated(t *testing.T, call func() error) (count, size uint64) {
	t.Helper()
	const rounds, calls = 5, 50
	for round := range rounds + 1 { // the first one warms up
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		allocations, bytes := (after.Mallocs-before.Mallocs)/calls, (after.TotalAlloc-before.TotalAlloc)/calls
		if round == 1 || allocations < count {
			count = allocations
		}
		if round == 1 || bytes < size {
			size = bytes
		}
	}
	return count, size
}

// smallestCall calls through gRPC alone, by a connection of its own.
func smallestCall(t testing.TB, address string) func(context.Context) error {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	health := healthpb.NewHealthClient(connection)
	return func(ctx context.Context) error {
		_, err := health.Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
}

func benchmark(b *testing.B, call func(context.Context) error) {
	b.Helper()
	b.ReportAllocs()
	for range b.N {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := call(ctx)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
	}
}

// The floor of every call: grpc-go's own allocations for an empty message each way.
func BenchmarkEmptyUnaryCall(b *testing.B) {
	benchmark(b, smallestCall(b, servertest.StartUnix(b).Address))
}

func BenchmarkCorrect64x512(b *testing.B) {
	client := dial(b, servertest.StartUnix(b).Address)
	batch := twoLogProbs(64, 512)
	into := cw.Into(cw.Arrays{Weights: make([]float32, 64*512), KeepMask: make([]uint8, 64*512)})
	method := cw.Preset("token_tis")
	benchmark(b, func(ctx context.Context) error {
		_, err := client.Correct(ctx, batch, method, into)
		return err
	})
}

func TestACallAllocatesLittleMoreThanGRPCItself(t *testing.T) {
	if raceDetected {
		t.Skip("under the race detector pools forget what they are given, so allocations are not counted")
	}
	const most = 22
	server := servertest.StartUnix(t)
	client := dial(t, server.Address)
	timeout := func(call func(context.Context) error) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return call(ctx)
		}
	}
	floor, _ := allocated(t, timeout(smallestCall(t, server.Address)))
	for _, shape := range [][2]int{{1, 4}, {64, 512}, {512, 2048}} {
		batch := twoLogProbs(shape[0], shape[1])
		positions := shape[0] * shape[1]
		into := cw.Into(cw.Arrays{Weights: make([]float32, positions), KeepMask: make([]uint8, positions)})
		method := cw.Preset("token_tis")
		count, size := allocated(t, timeout(func(ctx context.Context) error {
			_, err := client.Correct(ctx, batch, method, into)
			return err
		}))
		t.Logf("%v: %d allocations of %d bytes in all, of which gRPC's smallest call makes %d", shape, count, size, floor)
		// gRPC makes more for each 16 KiB of larger answers.
		if shape == [2]int{1, 4} && count > floor+most {
			t.Errorf("%v: %d allocations are more than %d above gRPC's %d", shape, count, most, floor)
		}
		if size > 64<<10 {
			t.Errorf("%v: %d bytes are allocated for a batch of %d", shape, size, 9*positions)
		}
	}
}
