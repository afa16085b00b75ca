//go:build unix

package counterweight_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// A pipe that nothing writes to keeps who opens it waiting.
func TestAPipeIsNoFileOfCredentials(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, files := range []cw.TLSFiles{{RootCAs: pipe}, {Certificate: pipe, Key: pipe}} {
		_, err := cw.New("localhost:1", cw.WithTLS(files))
		if err == nil || !strings.Contains(err.Error(), pipe+" is not a regular file") {
			t.Errorf("%v", err)
		}
	}
	client := dial(t, servertest.Start(t).Address, cw.WithTokenFile(pipe), cw.WithoutRetry())
	_, err := client.ServerInfo(background(t))
	if err == nil || !strings.Contains(err.Error(), pipe+" is not a regular file") {
		t.Errorf("%v", err)
	}
}
