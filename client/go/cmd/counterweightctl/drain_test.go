package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestAServerThatIsToldToStopDrains(t *testing.T) {
	server := servertest.Start(t, "--drain_delay=60")
	if err := server.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		_, err := ctl(t, "health", "--target="+server.Address)
		if err != nil && strings.Contains(err.Error(), "draining") {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the server is not draining: %v", err)
		}
	}
}
