package counterweight_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
)

// waiting sends to its channels when a call arrived and when its context ended there.
func waiting() (server *fakeserver.Server, came, ended chan struct{}) {
	came, ended = make(chan struct{}, 2000), make(chan struct{}, 2000)
	wait := func(ctx context.Context) error {
		came <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return status.FromContextError(ctx.Err()).Err()
	}
	return &fakeserver.Server{
		OnCorrect: func(ctx context.Context, _ *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			return nil, wait(ctx)
		},
		OnStream: func(stream pb.CorrectionService_CorrectStreamServer) error {
			if _, err := stream.Recv(); err != nil {
				return err
			}
			admission := &pb.CorrectStreamResponse_Admission{Admission: &pb.Admission{}}
			if err := stream.Send(&pb.CorrectStreamResponse{Frame: admission}); err != nil {
				return err
			}
			return wait(stream.Context()) // it reads no more, so that the client's sending stalls
		},
	}, came, ended
}

func expect(t *testing.T, channel <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-channel:
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
	}
}

func TestACancelledCallEndsOnBothSides(t *testing.T) {
	server, came, ended := waiting()
	address := server.Start(t)
	large := twoLogProbs(1024, 8192) // more than gRPC takes in before it is read
	for _, transport := range []cw.Transport{cw.Unary, cw.Stream} {
		client := dial(t, address, cw.WithTransport(transport))
		batch := threeTokens()
		if transport == cw.Stream {
			batch = large
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := client.Correct(ctx, batch, cw.Preset("token_tis"))
			done <- err
		}()
		expect(t, came, "the call")
		begin := time.Now()
		cancel()
		err := <-done
		if !errors.Is(err, context.Canceled) || errors.Is(err, cw.ErrUnavailable) || status.Code(err) != codes.Canceled {
			t.Errorf("%v: %v", transport, err)
		}
		if passed := time.Since(begin); passed > 5*time.Second {
			t.Errorf("%v: it took %v", transport, passed)
		}
		expect(t, ended, "the call's end at the server")
	}
}

func TestADeadlineIsTheContextsOrTheClients(t *testing.T) {
	server, came, ended := waiting()
	address := server.Start(t)
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for ctx, client := range map[context.Context]*cw.Client{
		short:                dial(t, address),
		context.Background(): dial(t, address, cw.WithTimeout(20*time.Millisecond)),
	} {
		_, err := client.Correct(ctx, threeTokens(), cw.Preset("token_tis"))
		if !errors.Is(err, context.DeadlineExceeded) || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v", err)
		}
		select {
		case <-came:
			expect(t, ended, "the call's end at the server")
		default: // on a busy machine the time may be over before the call is there
		}
	}
}

func TestAPauseEndsWithTheContextAndWithTheClient(t *testing.T) {
	for name, end := range map[string]func(*cw.Client, context.CancelFunc) error{
		"context": func(_ *cw.Client, cancel context.CancelFunc) error { cancel(); return context.Canceled },
		"client":  func(client *cw.Client, _ context.CancelFunc) error { _ = client.Close(); return cw.ErrClosed },
	} {
		server := refusing(refusal(t, codes.ResourceExhausted, patience))
		client := dial(t, server.Start(t), cw.WithTimeout(100*patience))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := client.Correct(ctx, threeTokens(), cw.Preset("token_tis"))
			done <- err
		}()
		for deadline := time.Now().Add(patience); len(server.Requests()) == 0; {
			if time.Now().After(deadline) {
				t.Fatal("the call did not come")
			}
			time.Sleep(time.Millisecond)
		}
		begin, want := time.Now(), end(client, cancel)
		if err := <-done; !errors.Is(err, want) || time.Since(begin) > patience/2 {
			t.Errorf("%s: %v after %v", name, err, time.Since(begin))
		}
	}
}

func TestCloseEndsCallsInFlightAndLaterOnes(t *testing.T) {
	server, came, ended := waiting()
	client := dial(t, server.Start(t))
	done := make(chan error, 1)
	go func() {
		_, err := client.Correct(context.Background(), threeTokens(), cw.Preset("token_tis"))
		done <- err
	}()
	expect(t, came, "the call")
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	expect(t, ended, "the call's end at the server")
	_, after := client.ServerInfo(background(t))
	for _, err := range []error{<-done, after, client.Close()} {
		if err != nil && (!errors.Is(err, cw.ErrClosed) || status.Code(err) != codes.Canceled || errors.Is(err, cw.ErrUnavailable)) {
			t.Errorf("%v", err)
		}
	}
	if after == nil {
		t.Error("a closed client made a call")
	}
}

func TestAThousandCancelledCallsLeaveNothingBehind(t *testing.T) {
	server, came, ended := waiting()
	address := server.Start(t)
	client := dial(t, address)
	before := openFiles(t)
	const rounds, each = 20, 50
	for range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var calls sync.WaitGroup
		for i := range each {
			calls.Add(1)
			go func() {
				defer calls.Done()
				transport := []cw.Transport{cw.Unary, cw.Stream}[i%2]
				_, err := client.Correct(ctx, threeTokens(), cw.Preset("token_tis"), cw.Via(transport))
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			}()
		}
		for range each {
			expect(t, came, "a call")
		}
		cancel()
		calls.Wait()
		for range each {
			expect(t, ended, "a call's end at the server")
		}
	}
	if after := openFiles(t); after > before+2 { // the connection's two ends
		t.Errorf("there were %d open files, and now there are %d", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("this system does not list open files: %v", err)
	}
	return len(entries)
}
