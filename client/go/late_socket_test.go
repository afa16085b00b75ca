//go:build linux

package counterweight_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// A silentSocket is the shared-memory socket of a server that answers when the test releases it.
type silentSocket struct {
	*fakeserver.Server
	address  string
	listener *net.UnixListener
}

func serveSilently(t *testing.T) *silentSocket {
	t.Helper()
	folder := servertest.Folder(t)
	path := filepath.Join(folder, "memory")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server := &fakeserver.Server{
		OnInfo: func() (*pb.GetServerInfoResponse, error) {
			return &pb.GetServerInfoResponse{Features: []string{"shared_memory"}, SharedMemorySocket: path}, nil
		},
		OnCorrect: func(_ context.Context, request *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			if request.GetDestinations() != nil {
				return &pb.CorrectResponse{RequestId: request.GetRequestId(), Tensors: request.GetDestinations()}, nil
			}
			return maskAnswer(request), nil
		},
	}
	socket, err := net.Listen("unix", filepath.Join(folder, "server"))
	if err != nil {
		t.Fatal(err)
	}
	return &silentSocket{server, "unix:" + server.Serve(t, socket), listener}
}

// accept takes the client's connection and its first packet; nil if it does not arrive in time.
func (s *silentSocket) accept(t *testing.T, patience time.Duration) *net.UnixConn {
	t.Helper()
	if err := s.listener.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	connection, err := s.listener.AcceptUnix()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if operation := operationOf(t, connection); operation != 1 {
		t.Fatalf("the first packet has the operation %d", operation)
	}
	return connection
}

// operationOf is that of the next packet.
func operationOf(t *testing.T, connection *net.UnixConn) uint32 {
	t.Helper()
	packet := make([]byte, 100)
	if err := connection.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(packet); err != nil || n != 40 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return binary.LittleEndian.Uint32(packet[4:])
}

// answerOK is the answer to a registration; the handle is its number.
func answerOK(t *testing.T, connection *net.UnixConn, number byte) {
	t.Helper()
	packet := make([]byte, 40)
	copy(packet, "CWM1")
	packet[24] = number
	if _, err := connection.Write(packet); err != nil {
		t.Fatal(err)
	}
}

func TestASocketThatDoesNotAnswerHoldsACallUntilItsDeadlineAndNoOther(t *testing.T) {
	server := serveSilently(t)
	client := dial(t, server.address, cw.WithRetry(cw.RetryPolicy{Attempts: -1}))
	var connection *net.UnixConn
	for connection == nil { // a slow machine may not connect in time
		late, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		if _, err := client.Correct(late, large(), cw.Preset("token_tis")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
		connection = server.accept(t, 10*time.Millisecond)
	}
	// The next calls go at once by gRPC, and send no packet.
	for range 2 {
		if _, err := client.Correct(background(t), large(), cw.Preset("token_tis")); err != nil {
			t.Fatal(err)
		}
	}
	short, end := context.WithTimeout(context.Background(), 50*time.Millisecond) // shorter than a pause
	defer end()
	_, err := client.Correct(short, large(), cw.Preset("token_tis"), cw.Via(cw.SharedMemory))
	if !errors.Is(err, cw.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	// The late answer gives the region back, which no call wants, and makes the socket good again.
	answerOK(t, connection, 1)
	if operation := operationOf(t, connection); operation != 2 {
		t.Errorf("the operation after the late answer is %d", operation)
	}
	answerOK(t, connection, 0)
	done := make(chan error, 1)
	go func() { // tried again until the late answers are read
		_, err := client.Correct(background(t), large(), cw.Preset("token_tis"), cw.Via(cw.SharedMemory))
		done <- err
	}()
	for number := range 2 { // inputs, outputs
		if operation := operationOf(t, connection); operation != 1 {
			t.Errorf("the operation is %d", operation)
		}
		answerOK(t, connection, byte(2+number))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := server.listener.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := server.listener.Accept(); err == nil {
		t.Error("the client connected again")
	}
}

func TestNothingWaitsBehindACallThatWaitsForThePacket(t *testing.T) {
	server := serveSilently(t)
	client := dial(t, server.address)
	memory := cw.Allocate[float32](client, 1000, cw.ForInput)
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 2)
	correct := func(ctx context.Context) {
		_, err := client.Correct(ctx, large(), cw.Preset("token_tis"))
		failed <- err
	}
	go correct(ctx)
	connection := server.accept(t, patience)
	if connection == nil {
		t.Fatal("the client does not connect")
	}
	go correct(context.Background())
	operationOf(t, connection) // it does not wait for the first
	memory.Close()
	if _, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
	begin := time.Now()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, cw.ErrClosed) {
		t.Errorf("%v", err)
	}
	if passed := time.Since(begin); passed > 5*time.Second {
		t.Errorf("they waited %v", passed)
	}
}

func TestTheLongestTimeoutIsNone(t *testing.T) {
	client := dial(t, refusing().Start(t), cw.WithTimeout(math.MaxInt64))
	if _, err := client.Correct(context.Background(), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
}
