package counterweight_test

import (
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func sendBuffer(t *testing.T, connection *net.UnixConn) (bytes int) {
	t.Helper()
	raw, err := connection.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if broken := raw.Control(func(fd uintptr) {
		bytes, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	}); broken != nil || err != nil {
		t.Fatal(broken, err)
	}
	return bytes
}

// A full socket stops gRPC's writer, which costs a quarter of a large batch's rate.
func TestAUnixSocketTakesMoreThanTheSystemsDefault(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(servertest.Folder(t), "server"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dialed, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	connection := dialed.(*net.UnixConn)
	before := sendBuffer(t, connection)
	shaken, err := cw.ShakeHands(connection)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shaken.Close() }()
	if after := sendBuffer(t, connection); after <= before {
		t.Errorf("it takes %d bytes, %d before", after, before)
	}
}
