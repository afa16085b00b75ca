package counterweight_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestATargetThatNoCallCouldReachIsRefused(t *testing.T) {
	for target, wrong := range map[string]string{
		"ipv4:127.0.0.1:1,127.0.0.1:2": "", "ipv6:[::1]:1": "", "dns:///a.example:1": "", "passthrough:///127.0.0.1:1": "",
		"http://localhost:1": `"http://localhost:1"`, "localhost:5005l": "HOST:PORT", "localhost": "no port", "passthrough:///nothing": "no port",
		"ipv4:127.0.0.1:1,localhost:2": `"localhost:2"`, "ipv4:[::1]:1": `"[::1]:1"`, "ipv6:127.0.0.1:1": `"127.0.0.1:1"`,
		"ipv4:": `""`, "ipv4:127.0.0.1:1,": `""`,
	} {
		client, err := cw.New(target, cw.WithToken("s3cr3t"), cw.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS13}))
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v", target, err)
		}
		if client != nil {
			_ = client.Close()
		}
	}
}

func TestAResolverOfTheCallersKnowsItsScheme(t *testing.T) {
	server := refusing()
	address := resolver.Address{Addr: server.Start(t)}
	own := manual.NewBuilderWithScheme("own")
	own.InitialState(resolver.State{Addresses: []resolver.Address{address}})
	client := dial(t, "own:servers", cw.WithDialOptions(grpc.WithResolvers(own)))
	if _, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
	if _, err := cw.New("own:servers", cw.WithDialOptions(grpc.WithResolvers(own)), cw.WithToken("s3cr3t")); err == nil {
		t.Error("a token goes where a resolver says, without TLS")
	}
	if _, err := cw.New("http://localhost:1", cw.WithDialOptions(grpc.WithResolvers(own))); err == nil {
		t.Error("a resolver of another scheme hides the mistake")
	}
}

func TestAPathIsTakenAsItIsWritten(t *testing.T) {
	for _, name := range []string{"a b%41.sock", "ö.sock"} {
		folder := servertest.Folder(t)
		listener, err := net.Listen("unix", filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		refusing().Serve(t, listener)
		for _, target := range []string{"unix:" + filepath.Join(folder, name), "unix://" + filepath.Join(folder, name)} {
			if _, err := dial(t, target, cw.WithoutRetry()).Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
				t.Errorf("%s: %v", target, err)
			}
		}
	}
}
