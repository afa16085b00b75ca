package counterweight_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// stalled waits until a number has not changed for a while.
func stalled(t *testing.T, number *atomic.Int64) {
	t.Helper()
	const looks = 100
	last, unchanged := number.Load(), 0
	for deadline := time.Now().Add(patience); unchanged < looks; time.Sleep(time.Millisecond) {
		if now := number.Load(); now == last && now > 0 {
			unchanged++
		} else {
			last, unchanged = now, 0
		}
		if time.Now().After(deadline) {
			t.Fatal("it goes on")
		}
	}
}

func TestABatchIsFreeWhenACallToAFrozenServerWasGivenUp(t *testing.T) {
	frozen := newSwitch(t, servertest.Start(t).Address)
	client := dial(t, frozen.address, cw.WithTransport(cw.Stream), cw.WithoutRetry())
	batch := twoLogProbs(1024, 4096) // more than the connection takes
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() {
		_, err := client.Correct(ctx, batch, cw.Preset("token_tis"), cw.Progress(func(now, _ int64) {
			if now > 0 {
				frozen.freeze()
				sent.Store(now)
			}
		}))
		done <- err
	}()
	stalled(t, &sent)
	if sent.Load() > int64(8*len(batch.ResponseMask)) {
		t.Fatalf("the connection takes %d bytes", sent.Load())
	}
	begin := time.Now()
	cancel()
	err := <-done
	if passed := time.Since(begin); !errors.Is(err, context.Canceled) || passed > 10*time.Second {
		t.Errorf("%v after %v", err, passed)
	}
	if writes := client.Writes(); writes != 0 {
		t.Errorf("%d connections are being written to: gRPC may still read the batch", writes)
	}
	// The race detector reports a read that goes on.
	clear(batch.ResponseMask)
	clear(batch.OldLogProbs)
	clear(batch.RolloutLogProbs)
	frozen.thaw()
	// The client is as good as before, with another connection.
	for deadline := time.Now().Add(patience); ; {
		_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"), cw.Via(cw.Unary))
		if err == nil {
			return
		}
		if !errors.Is(err, cw.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatalf("the next call: %v", err)
		}
	}
}
