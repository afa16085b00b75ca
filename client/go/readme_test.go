package counterweight_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// around is the program around the README's block.
const around = `package main

import (
	"context"
	"fmt"
	"log"

	counterweight "github.com/counterweight/counterweight/client/go"
)

func correct(ctx context.Context, rollout, old []float32, mask []uint8) error {
BLOCK
	if err == nil && len(result.Weights) != len(mask) {
		err = fmt.Errorf("there are %d weights", len(result.Weights))
	}
	return err
}

func main() {
	rollout, mask := make([]float32, 64*512), make([]uint8, 64*512)
	for i := range mask {
		rollout[i], mask[i] = -1, 1
	}
	if err := correct(context.Background(), rollout, rollout, mask); err != nil {
		log.Fatal(err)
	}
}
`

func TestTheReadmeRunsAsItIsWritten(t *testing.T) {
	server := servertest.Start(t)
	const path, target = "README.md", "unix:/run/counterweight/cw.sock"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```go\n")
	block, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended || !strings.Contains(block, target) {
		t.Fatalf("%s has no block of Go with the target %s", path, target)
	}
	program := strings.Replace(around, "BLOCK", strings.Replace(block, target, server.Address, 1), 1)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("go", "run", file).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", path, err, output)
	}
}
