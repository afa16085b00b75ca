// Package servertest starts counterweight-server for tests.
package servertest

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Variable is the environment variable with the path of the built server.
const Variable = "COUNTERWEIGHT_SERVER"

const (
	listening = "counterweight-server listening on "
	metrics   = "metrics on "
	// startTime is far above what starting takes; only a hang reaches it.
	startTime = 150 * time.Second
)

// A Server is a process on ports of its own choosing, which ends with the test.
type Server struct {
	// Address is what a client dials.
	Address string
	// MetricsURL is what Prometheus scrapes.
	MetricsURL string
	// Folder is for sockets; its path is short enough for them.
	Folder string

	command *exec.Cmd
	log     *bytes.Buffer
	stop    sync.Once
}

// Binary is the path of the server, or skips the test.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		t.Skipf("%s does not name the built server, so what needs one is not tested", Variable)
	}
	return path
}

// Start starts a server on a free TCP port with these flags added.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return start(t, Folder(t), "127.0.0.1:0", flags)
}

// StartUnix starts one on a Unix socket that shares memory.
func StartUnix(t testing.TB, flags ...string) *Server {
	t.Helper()
	return StartUnixIn(t, Folder(t), flags...)
}

// StartUnixIn is StartUnix with the sockets in a folder of the test's.
func StartUnixIn(t testing.TB, folder string, flags ...string) *Server {
	t.Helper()
	flags = append([]string{"--shared_memory_socket=" + filepath.Join(folder, "memory")}, flags...)
	return start(t, folder, "unix:"+filepath.Join(folder, "server"), flags)
}

// Folder is a new one with a short path.
func Folder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func start(t testing.TB, folder, listen string, flags []string) *Server {
	t.Helper()
	server := &Server{Folder: folder, log: &bytes.Buffer{}}
	server.command = exec.Command(Binary(t), append([]string{
		"--listen=" + listen, "--metrics_listen=127.0.0.1:0", "--drain_delay=0",
		// A slow machine must not look like a broken client.
		"--stream_timeout=3600", "--unary_timeout=3600", "--max_queue_seconds=3600",
	}, flags...)...)
	server.command.Stderr = server.log
	output, err := server.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	// A server that hangs is ended, so that reading its output ends too.
	timer := time.AfterFunc(startTime, func() { _ = server.command.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(output)
	for (server.Address == "" || server.MetricsURL == "") && lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), listening); ok {
			server.Address = strings.TrimSpace(address)
		}
		if url, ok := strings.CutPrefix(lines.Text(), metrics); ok {
			server.MetricsURL = strings.TrimSpace(url)
		}
	}
	if server.Address == "" || server.MetricsURL == "" {
		server.Kill()
		t.Fatalf("the server did not start: %s", server.log)
	}
	return server
}

// Kill ends the process at once. It may be called again.
func (s *Server) Kill() {
	s.stop.Do(func() {
		_ = s.command.Process.Kill()
		_ = s.command.Wait()
	})
}

// Signal sends a signal to the process.
func (s *Server) Signal(signal syscall.Signal) error { return s.command.Process.Signal(signal) }

// Freeze stops the process until SIGCONT, and returns when no thread of it runs anymore.
func (s *Server) Freeze() error {
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(s.command.Process.Pid, &status, syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// OpenFiles counts the server's file descriptors.
func (s *Server) OpenFiles() (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.command.Process.Pid), "fd"))
	return len(entries), err
}
