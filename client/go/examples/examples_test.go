// Package examples has programs that use the client.
package examples

import (
	"os/exec"
	"testing"

	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func run(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.Command("go", append([]string{"run"}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", arguments, err, output)
	}
	return string(output)
}

// The engine's rounding keeps the first loop where it began.
func TestTheLoopLearnsAfterTheCorrection(t *testing.T) {
	server := servertest.Start(t)
	if got := run(t, "./loop/before"); got != "expected reward 0.78\n" {
		t.Errorf("before: %q", got)
	}
	if got := run(t, "./loop/after", server.Address); got != "expected reward 0.99\n" {
		t.Errorf("after: %q", got)
	}
}
