package counterweight_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	cw "github.com/counterweight/counterweight/client/go"
)

// proxied names the targets, in lines, that a copy of this test program calls. Go reads the
// environment's proxy once per process.
const proxied = "COUNTERWEIGHT_TEST_PROXIED"

// A recorder is a proxy that takes connections, keeps the bytes, and answers nothing.
type recorder struct {
	listener net.Listener
	mutex    sync.Mutex
	taken    []byte
}

func record(t *testing.T) *recorder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &recorder{listener: listener}
	var connections sync.WaitGroup
	connections.Add(1)
	go func() {
		defer connections.Done()
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer connections.Done()
				taken := make([]byte, 4096)
				n, _ := connection.Read(taken)
				_ = connection.Close()
				proxy.mutex.Lock()
				defer proxy.mutex.Unlock()
				proxy.taken = append(proxy.taken, taken[:n]...)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return proxy
}

// seen is what the proxy got of a program that calls the targets.
func (r *recorder) seen(t *testing.T, environment string, targets ...string) string {
	t.Helper()
	program := exec.Command(os.Args[0], "-test.run=^TestTheTargetsOfAnotherProcess$", "-test.count=1")
	for _, variable := range os.Environ() {
		if !strings.Contains(strings.ToLower(variable), "_proxy=") {
			program.Env = append(program.Env, variable)
		}
	}
	program.Env = append(program.Env, proxied+"="+strings.Join(targets, "\n"))
	for _, name := range strings.Fields(environment) {
		program.Env = append(program.Env, name+"=http://"+r.listener.Addr().String())
	}
	if output, err := program.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	seen := string(r.taken)
	r.taken = nil
	return seen
}

func TestTheTargetsOfAnotherProcess(t *testing.T) {
	targets := os.Getenv(proxied)
	if targets == "" {
		t.Skip("only a program of another test has targets")
	}
	for _, target := range strings.Split(targets, "\n") {
		var options []cw.ClientOption
		if name, found := strings.CutSuffix(target, " with a token"); found {
			target, options = name, append(options, cw.WithToken("s3cr3t"))
		}
		client := dial(t, target, append(options, cw.WithoutRetry())...)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if _, err := client.ServerInfo(ctx); err == nil {
			t.Errorf("%s answers", target)
		}
		cancel()
	}
}

func TestNothingForThisMachineGoesThroughAProxy(t *testing.T) {
	proxy := record(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(closed.Addr().String())
	_ = closed.Close()
	var local []string
	for _, target := range []string{
		"localhost:", "LOCALHOST:", "localhost.:", "worker.localhost:", "ip6-localhost:", "127.0.0.1:", "127.1.2.3:", "0.0.0.0:",
		"[::1]:", "[::]:", "[::ffff:127.0.0.1]:", "dns:///localhost:", "dns:localhost:", "dns:///127.0.0.1:", "dns:///[::1]:",
		"dns://127.0.0.1/localhost:", "passthrough:///127.0.0.1:", "passthrough:///localhost:", "ipv4:127.0.0.1:", "ipv6:[::1]:",
		"ipv4:127.0.0.1:9,127.0.0.2:", "ipv4:127.0.0.1:9,192.0.2.1:",
	} {
		local = append(local, target+port)
	}
	for _, target := range []string{"unix:/tmp/no/such/socket", "unix:///tmp/no/such/socket", "unix:no-such-socket", "unix-abstract:no-such-socket"} {
		local = append(local, target, target+" with a token")
	}
	local = append(local, "localhost:"+port+" with a token", "127.0.0.1:"+port+" with a token")
	for _, environment := range []string{"HTTPS_PROXY HTTP_PROXY ALL_PROXY", "https_proxy http_proxy all_proxy grpc_proxy"} {
		if seen := proxy.seen(t, environment, local...); seen != "" {
			t.Errorf("with %s the proxy got %q", environment, seen)
		}
		if seen := proxy.seen(t, environment, "counterweight.test:"+port); !strings.HasPrefix(seen, "CONNECT counterweight.test:"+port) {
			t.Errorf("with %s the proxy got %q of a server elsewhere", environment, seen)
		}
	}
}
