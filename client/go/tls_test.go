package counterweight_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
)

// An authority signs certificates for 127.0.0.1.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	made := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &made.key.PublicKey, made.key)
	if err != nil {
		t.Fatal(err)
	}
	if made.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return made
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue writes a certificate and its key into files.
func (a *authority) issue(t *testing.T, folder, name string) (certificate, key string) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	writePEM(t, certificate, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", keyDER)
	return certificate, key
}

func (a *authority) write(t *testing.T, path string) {
	t.Helper()
	writePEM(t, path, "CERTIFICATE", a.certificate.Raw)
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTLSFilesAreReadAgainForLaterConnections(t *testing.T) {
	folder := t.TempDir()
	first, second := newAuthority(t), newAuthority(t)
	roots := filepath.Join(folder, "roots.pem")
	var current atomic.Pointer[tls.Config]
	serve := func(authority *authority, name string) {
		certificate, key := authority.issue(t, folder, name)
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		current.Store(&tls.Config{
			Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.pool(),
		})
	}
	serve(first, "server")
	first.write(t, roots)
	certificate, key := first.issue(t, folder, "client")
	server := refusing()
	config := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }}
	// Connections are short, so that the next call makes another one.
	address := server.Start(t, grpc.Creds(credentials.NewTLS(config)))
	files := cw.TLSFiles{RootCAs: roots, Certificate: certificate, Key: key}
	correct := func(options ...cw.ClientOption) error {
		client := dial(t, address, append(options, cw.WithoutRetry())...)
		_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
		return err
	}
	client := dial(t, address, cw.WithTLS(files))
	if _, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Fatal(err)
	}
	if err := correct(); !errors.Is(err, cw.ErrUnavailable) {
		t.Errorf("without TLS: %v", err)
	}
	if err := correct(cw.WithTLS(cw.TLSFiles{RootCAs: roots})); err == nil {
		t.Error("without the client's certificate there is an answer")
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := correct(cw.WithTLSConfig(&tls.Config{RootCAs: first.pool(), Certificates: []tls.Certificate{pair}})); err != nil {
		t.Errorf("with a configuration: %v", err)
	}

	// Everything is renewed; the server ends its connections as it restarts.
	serve(second, "server")
	if err := correct(cw.WithTLS(files)); err == nil {
		t.Error("a server of another authority is trusted")
	}
	second.write(t, roots)
	second.issue(t, folder, "client")
	restarted := refusing()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxied := newSwitch(t, address)
	through := dial(t, proxied.address, cw.WithTLS(files))
	proxied.to(restarted.Serve(t, listener, grpc.Creds(credentials.NewTLS(config))))
	if _, err := through.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Errorf("with renewed files: %v", err)
	}
	first.write(t, roots)
	proxied.cut()
	if _, err := through.Correct(background(t), threeTokens(), cw.Preset("token_tis")); !errors.Is(err, cw.ErrUnavailable) {
		t.Errorf("the roots are not read again: %v", err)
	}
	second.write(t, roots)
	if _, err := through.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Errorf("the roots are not read again: %v", err)
	}
}

func TestTokensTravelWithEveryCall(t *testing.T) {
	server := refusing()
	address := server.Start(t)
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	last := func() string {
		metadata := server.Metadata()
		if values := metadata[len(metadata)-1].Get("authorization"); len(values) == 1 {
			return values[0]
		}
		return ""
	}
	write("first\n")
	file := dial(t, address, cw.WithTokenFile(path))
	source := dial(t, address, cw.WithTokenSource(func(context.Context) (string, error) { return "made", nil }))
	for _, test := range []struct {
		client *cw.Client
		change string
		want   string
	}{
		{dial(t, address, cw.WithToken("plain")), "", "Bearer plain"},
		{file, "", "Bearer first"},
		{file, "second", "Bearer second"},
		{source, "", "Bearer made"},
		{dial(t, address), "", ""},
	} {
		if test.change != "" {
			write(test.change)
		}
		if _, err := test.client.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
			t.Error(err)
		}
		if got := last(); got != test.want {
			t.Errorf("the server got %q instead of %q", got, test.want)
		}
	}
	for _, option := range []cw.ClientOption{
		cw.WithToken(""), cw.WithToken("two\nlines"), cw.WithTokenFile("/no/such/file"),
		cw.WithTokenSource(func(context.Context) (string, error) { return "", errors.New("no") }),
	} {
		_, err := dial(t, address, option).Correct(background(t), threeTokens(), cw.Preset("token_tis"))
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%v", err)
		}
	}
}

func TestATokenNeedsTLSOrThisMachine(t *testing.T) {
	for target, ok := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "unix:/tmp/socket": true, "dns:///localhost:1": true,
		"dns:localhost:1": true, "ipv4:127.0.0.1:1,127.0.0.1:2": true, "ipv6:[::1]:1": true,
		"ipv4:127.0.0.1:1,10.0.0.1:2": false, "ipv6:[::1]:1,[2001:db8::1]:2": false,
		"example.org:1": false, "10.0.0.1:1": false, "dns:///example.org": false, "localhost.example.org:1": false,
	} {
		client, err := cw.New(target, cw.WithToken("secret"))
		if (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
		if client != nil {
			_ = client.Close()
		}
	}
}
