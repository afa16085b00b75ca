package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	counterweight "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/cmd/counterweightctl/drift"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// patience is far above what anything here takes.
const patience = 60 * time.Second

// ctl runs a command line and returns what it prints.
func ctl(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var output bytes.Buffer
	command := newCommand()
	command.SetOut(&output)
	command.SetArgs(arguments)
	err := command.ExecuteContext(ctx)
	return output.String(), err
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

func TestTheServerIsDescribed(t *testing.T) {
	target := "--target=" + servertest.Start(t).Address
	for arguments, parts := range map[string][]string{
		"info":                     {"version", "backend", "max_message_bytes", "dialect verl", "0.9.1"},
		"info --json":              {`"numerics_version":`, `"max_tokens":`},
		"methods":                  {"token_tis", "geo_rs_token_tis"},
		"methods token_tis":        {"upper", "ratio", "as verl", "rollout_is"},
		"methods token_tis --json": {`"name":`, `"equivalents":`},
		"health":                   {"serving"},
	} {
		output, err := ctl(t, append(strings.Fields(arguments), target)...)
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
		wants(t, output, parts...)
	}
	if _, err := ctl(t, "methods", "no_such", target); err == nil {
		t.Error("a method that there is not is described")
	}
}

func TestArgumentsAreCompleted(t *testing.T) {
	target := "--target=" + servertest.Start(t).Address
	for _, test := range []struct {
		words []string
		want  string
	}{
		{[]string{"wa"}, "watch"},
		{[]string{"watch", "--inter"}, "--interval"},
		{[]string{target, "methods", "geo"}, "geo_rs_token_tis"},
		// Without a server there is nothing to suggest, and no error into the command line.
		{[]string{"--target=127.0.0.1:1", "methods", "geo"}, ":4"},
	} {
		output, err := ctl(t, append([]string{"__complete"}, test.words...)...)
		if err != nil {
			t.Errorf("%v: %v", test.words, err)
		}
		wants(t, output, test.want)
	}
}

func TestHealthWaitsForAServer(t *testing.T) {
	if _, err := ctl(t, "health", "--target=127.0.0.1:1"); !errors.Is(err, counterweight.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	folder := servertest.Folder(t)
	done := make(chan error, 1)
	go func() {
		_, err := ctl(t, "health", "--wait=1m", "--target=unix:"+filepath.Join(folder, "server"))
		done <- err
	}()
	servertest.StartUnixIn(t, folder)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTheShellsAreCompleted(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		output, err := ctl(t, "completion", shell)
		if err != nil {
			t.Error(err)
		}
		wants(t, output, "counterweightctl")
	}
	path := filepath.Join(t.TempDir(), "completion")
	output, _ := ctl(t, "completion", "bash")
	if err := os.WriteFile(path, []byte(output), 0o600); err != nil {
		t.Fatal(err)
	}
	if problem, err := exec.Command("bash", "-n", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, problem)
	}
}

func TestTheDriftOfARunIsWatched(t *testing.T) {
	server := servertest.Start(t)
	client, err := counterweight.New(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	batch := &counterweight.Batch{
		Shape: [2]int{1, 3}, ResponseMask: []uint8{1, 1, 0},
		RolloutLogProbs: []float32{-1, -2, -0.5}, OldLogProbs: []float32{-0.9, -2.1, -0.5},
	}
	for range 2 {
		if _, err := client.Correct(context.Background(), batch, counterweight.Preset("token_tis"), counterweight.Run("ctl")); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := drift.Read(context.Background(), server.MetricsURL)
	if err != nil || runs["ctl"].Batches() != 2 {
		t.Errorf("%v, %v", runs, err)
	}
	printed, err := ctl(t, "watch", "ctl", "--metrics="+server.MetricsURL, "--count=1")
	if err != nil {
		t.Error(err)
	}
	wants(t, printed, "batches", "ess", "        2")
	printed, err = ctl(t, "watch", "--metrics="+server.MetricsURL)
	if err != nil {
		t.Error(err)
	}
	wants(t, printed, "ctl\t2 batches")
}

func TestAWrongCommandLineIsExitCode2(t *testing.T) {
	for _, arguments := range [][]string{
		{"info", "more"}, {"--no-such"}, {"methods", "a", "b"}, {"correct", "batch.npz"},
		{"info", "--tls-ca=/no/such"}, {"watch", "--interval=0s"}, {"no-such"}, {"info", "--timeout=0s"}, {"health", "--timeout=-1s"},
		{"health", "--wait=-1s"}, {"info", "--target=http://localhost:50051"}, {"health", "--target=localhost"}, {"info", "-t", "unix:/run/"},
	} {
		if code := run(arguments); code != exitUsage {
			t.Errorf("%v ends with %d", arguments, code)
		}
	}
	if code := run([]string{"info", "--target=127.0.0.1:1", "--timeout=1s"}); code != exitFailed {
		t.Errorf("a server that is not there ends with %d", code)
	}
}
