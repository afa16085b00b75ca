package sharedmemory

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// A server that refuses a peer may have closed before the peer sends its first packet.
func TestARefusalCountsThoughNothingCanBeSent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			peer, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			packet := newPacket(uint32(codes.PermissionDenied))
			_, _ = peer.Write(append(packet, "own user's processes only"...))
			_ = peer.Close()
		}
	}()
	region, err := newRegion(Read, 4096)
	if err != nil {
		t.Fatal(err)
	}
	// Each time in another order of the client's and the server's steps.
	for i := range 200 {
		control, err := connect(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := control.register(context.Background(), region); err == nil || !strings.Contains(err.Error(), "own user's") {
			t.Fatalf("connection %d: %v", i, err)
		}
		control.close()
	}
}
