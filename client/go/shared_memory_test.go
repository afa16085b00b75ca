//go:build linux

package counterweight_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// large is a batch that Auto does not send as one message.
func large() *cw.Batch { return twoLogProbs(512, 512) }

func TestMemoryThatIsSharedIsReadAndWrittenInPlace(t *testing.T) {
	server := servertest.StartUnix(t)
	client := dial(t, server.Address, cw.WithTransport(cw.SharedMemory))
	plain := large()
	want, err := client.Correct(background(t), plain, cw.Preset("token_tis"), cw.Via(cw.Unary))
	if err != nil {
		t.Fatal(err)
	}
	positions := len(plain.ResponseMask)
	inputs := cw.Allocate[float32](client, 2*positions, cw.ForInput)
	mask := cw.Allocate[uint8](client, positions, cw.ForInput)
	weights := cw.Allocate[float32](client, positions, cw.ForOutput)
	keep := cw.Allocate[uint8](client, positions, cw.ForOutput)
	copy(inputs.Slice(), plain.RolloutLogProbs)
	copy(inputs.Slice()[positions:], plain.OldLogProbs)
	copy(mask.Slice(), plain.ResponseMask)
	batch := &cw.Batch{
		Shape: plain.Shape, RolloutLogProbs: inputs.Slice()[:positions], OldLogProbs: inputs.Slice()[positions:],
		ResponseMask: mask.Slice(),
	}
	into := cw.Arrays{Weights: weights.Slice(), KeepMask: keep.Slice()}
	for range 3 {
		clear(into.Weights)
		got, err := client.Correct(background(t), batch, cw.Preset("token_tis"), cw.Into(into))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Arrays, want.Arrays) || &got.Weights[0] != &weights.Slice()[0] {
			t.Error("the answer is another one, or elsewhere")
		}
	}
	inputs.Close()
	weights.Close()
	mask.Close()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if keep.Slice()[0] != want.KeepMask[0] {
		t.Error("memory is gone before its Close")
	}
	keep.Close()
	keep.Close()
}

func TestAutoSharesMemoryWhereItCan(t *testing.T) {
	server := servertest.StartUnix(t)
	client := dial(t, server.Address)
	method := cw.Config( // this package does not know its outputs at first
		cw.RejectionRule(cw.RatioOldRollout, cw.EstimatorK3, cw.AggregationMean).Upper(0.004))
	first, err := client.Correct(background(t), large(), method)
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Correct(background(t), large(), method)
	if err != nil {
		t.Fatal(err)
	}
	unary, err := client.Correct(background(t), large(), method, cw.Via(cw.Unary))
	if err != nil {
		t.Fatal(err)
	}
	if first.Weights != nil || !reflect.DeepEqual(first.Arrays, unary.Arrays) || !reflect.DeepEqual(second.Arrays, unary.Arrays) {
		t.Error("the transports have different answers")
	}
	// Without the socket another way is used, unless the caller selected this one.
	if err := os.Remove(filepath.Join(server.Folder, "memory")); err != nil {
		t.Fatal(err)
	}
	other := dial(t, server.Address)
	if _, err := other.Correct(background(t), large(), method); err != nil {
		t.Error(err)
	}
	_, err = dial(t, server.Address).Correct(background(t), large(), method, cw.Via(cw.SharedMemory))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	_, err = dial(t, servertest.Start(t).Address).Correct(background(t), large(), method, cw.Via(cw.SharedMemory))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
}

func TestABatchThatTheServerDoesNotMapGoesAsAStream(t *testing.T) {
	server := servertest.StartUnix(t, "--max_shared_memory_bytes=262144")
	client := dial(t, server.Address)
	if _, err := client.Correct(background(t), large(), cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
	small := twoLogProbs(4, 4)
	if _, err := client.Correct(background(t), small, cw.Preset("token_tis"), cw.Via(cw.SharedMemory)); err != nil {
		t.Error(err)
	}
}

func TestAServerThatComesBackKnowsTheMemoryAgain(t *testing.T) {
	folder := servertest.Folder(t)
	server := servertest.StartUnixIn(t, folder)
	client := dial(t, server.Address, cw.WithTransport(cw.SharedMemory))
	for range 2 {
		if _, err := client.Correct(background(t), large(), cw.Preset("token_tis")); err != nil {
			t.Fatal(err)
		}
		server.Kill()
		server = servertest.StartUnixIn(t, folder)
	}
	if _, err := client.Correct(background(t), large(), cw.Preset("token_tis")); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryMayBeClosedWhileACallUsesIt(t *testing.T) {
	server := servertest.StartUnix(t)
	client := dial(t, server.Address, cw.WithTransport(cw.SharedMemory))
	before := openFiles(t)
	var calls sync.WaitGroup
	for range 8 {
		calls.Add(1)
		go func() {
			defer calls.Done()
			plain := large()
			for range 5 {
				rollout := cw.Allocate[float32](client, len(plain.ResponseMask), cw.ForInput)
				copy(rollout.Slice(), plain.RolloutLogProbs)
				batch := *plain
				batch.RolloutLogProbs = rollout.Slice()
				// The call is past its beginning when it reports the first byte.
				closing := cw.Progress(func(sent, _ int64) {
					if sent == 0 {
						rollout.Close()
					}
				})
				if _, err := client.Correct(background(t), &batch, cw.Preset("token_tis"), closing); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	calls.Wait()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if after := openFiles(t); after > before {
		t.Errorf("there were %d open files, and now there are %d", before, after)
	}
}

func TestClosedMemoryGoesBackAfterItsCall(t *testing.T) {
	server := servertest.StartUnix(t)
	client := dial(t, server.Address, cw.WithTransport(cw.SharedMemory))
	correct := func() {
		batch := large()
		rollout := cw.Allocate[float32](client, len(batch.ResponseMask), cw.ForInput)
		copy(rollout.Slice(), batch.RolloutLogProbs)
		batch.RolloutLogProbs = rollout.Slice()
		if _, err := client.Correct(background(t), batch, cw.Preset("token_tis")); err != nil {
			t.Error(err)
		}
		rollout.Close()
	}
	correct()
	before := openFiles(t)
	for range 20 {
		correct()
	}
	if after := openFiles(t); after > before {
		t.Errorf("there were %d open files, and now there are %d", before, after)
	}
}

func TestCancelledCallsDoNotUseMemoryUp(t *testing.T) {
	server := servertest.StartUnix(t)
	client := dial(t, server.Address, cw.WithTransport(cw.SharedMemory))
	batch := large()
	correct := func(ctx context.Context) error {
		_, err := client.Correct(ctx, batch, cw.Preset("token_tis"))
		return err
	}
	if err := correct(background(t)); err != nil {
		t.Fatal(err)
	}
	before, err := server.OpenFiles()
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		report := cw.Progress(func(int64, int64) { cancel() })
		_, err := client.Correct(ctx, batch, cw.Preset("token_tis"), report)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if err := correct(background(t)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		after, err := server.OpenFiles()
		if err != nil {
			t.Fatal(err)
		}
		if after <= before+2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server had %d open files, and now has %d", before, after)
		}
	}
}
