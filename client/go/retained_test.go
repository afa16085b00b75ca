package counterweight_test

import (
	"runtime"
	"testing"
	"time"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// Callers keep results of many batches; the inputs are far larger.
func TestAResultDoesNotKeepItsBatch(t *testing.T) {
	client := dial(t, servertest.StartUnix(t).Address)
	for _, transport := range []cw.Transport{cw.Unary, cw.Stream, cw.SharedMemory} {
		freed := make(chan struct{})
		correct := func() *cw.Result {
			batch := threeTokens()
			runtime.SetFinalizer(batch, func(*cw.Batch) { close(freed) })
			result, err := client.Correct(background(t), batch, cw.Preset("token_tis"), cw.Via(transport))
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		result := correct()
		for end := time.Now().Add(patience); ; {
			runtime.GC()
			select {
			case <-freed:
			case <-time.After(time.Millisecond):
				if time.Now().Before(end) {
					continue
				}
				t.Errorf("%v: the batch is kept", transport)
			}
			break
		}
		runtime.KeepAlive(result)
	}
}
