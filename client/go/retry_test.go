package counterweight_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
)

// refusal is an error with a delay, as the server sends it.
func refusal(t *testing.T, code codes.Code, delay time.Duration) error {
	t.Helper()
	refused, err := status.New(code, "no room").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		t.Fatal(err)
	}
	return refused.Err()
}

// refusing answers with the errors one after the other, then with an answer.
func refusing(refusals ...error) *fakeserver.Server {
	var calls atomic.Int64
	return &fakeserver.Server{
		OnCorrect: func(_ context.Context, request *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			if call := int(calls.Add(1)); call <= len(refusals) {
				return nil, refusals[call-1]
			}
			return maskAnswer(request), nil
		},
	}
}

func TestARefusedCallIsTriedAgainWithTheSameRequestID(t *testing.T) {
	server := refusing(refusal(t, codes.ResourceExhausted, time.Millisecond), refusal(t, codes.Unavailable, time.Millisecond),
		status.Error(codes.Unavailable, "gone"))
	client := dial(t, server.Start(t))
	result, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
	if err != nil {
		t.Fatal(err)
	}
	requests := server.Requests()
	if len(requests) != 4 {
		t.Errorf("there were %d attempts", len(requests))
	}
	for _, request := range requests {
		if request.GetRequestId() != result.RequestID || result.RequestID == "" {
			t.Errorf("an attempt is called %q instead of %q", request.GetRequestId(), result.RequestID)
		}
	}
	for _, metadata := range server.Metadata() {
		if id := metadata.Get("counterweight-client"); len(id) != 1 || len(id[0]) != 32 {
			t.Errorf("the client is called %q", id)
		}
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	refused := refusal(t, codes.ResourceExhausted, time.Millisecond)
	server := refusing(refused, refused, refused, refused)
	client := dial(t, server.Start(t), cw.WithRetry(cw.RetryPolicy{Attempts: 3}))
	_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
	var overloaded *cw.OverloadedError
	if !errors.As(err, &overloaded) || !overloaded.Retryable || overloaded.RetryAfter != time.Millisecond {
		t.Errorf("%v", err)
	}
	if attempts := len(server.Requests()); attempts != 3 {
		t.Errorf("there were %d attempts", attempts)
	}
}

func TestAPauseBeyondTheDeadlineIsNotBegun(t *testing.T) {
	for name, test := range map[string]struct {
		policy  cw.RetryPolicy
		timeout time.Duration
	}{
		"of the context": {cw.RetryPolicy{}, patience},
		"of the policy":  {cw.RetryPolicy{MaxElapsed: patience}, 100 * patience},
	} {
		server := refusing(refusal(t, codes.ResourceExhausted, 2*patience))
		client := dial(t, server.Start(t), cw.WithRetry(test.policy))
		ctx, cancel := context.WithTimeout(context.Background(), test.timeout)
		defer cancel()
		begin := time.Now()
		_, err := client.Correct(ctx, threeTokens(), cw.Preset("token_tis"))
		if status.Code(err) != codes.ResourceExhausted || time.Since(begin) > patience/2 {
			t.Errorf("%s: %v after %v", name, err, time.Since(begin))
		}
	}
}

func TestTheServerMayForbidRetries(t *testing.T) {
	var calls atomic.Int64
	server := &fakeserver.Server{
		OnCorrect: func(ctx context.Context, _ *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			calls.Add(1)
			_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", "-1"))
			return nil, status.Error(codes.Unavailable, "no")
		},
	}
	client := dial(t, server.Start(t))
	_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
	var call *cw.CallError
	if !errors.Is(err, cw.ErrUnavailable) || !errors.As(err, &call) || call.Retryable || calls.Load() != 1 {
		t.Errorf("%v after %d attempts", err, calls.Load())
	}
}

func TestWhatTheServerMayHaveDoneIsNotTriedAgain(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.InvalidArgument, codes.ResourceExhausted, codes.DeadlineExceeded} {
		server := refusing(status.Error(code, "no"))
		client := dial(t, server.Start(t))
		_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
		if status.Code(err) != code || len(server.Requests()) != 1 {
			t.Errorf("%v after %d attempts", err, len(server.Requests()))
		}
		if errors.Is(err, cw.ErrUnavailable) {
			t.Errorf("%v is of the wrong kind", err)
		}
	}
}

func TestAServerThatEndsIsTriedAgainOnce(t *testing.T) {
	ends := status.Error(codes.Canceled, "shutdown")
	gone := refusal(t, codes.Unavailable, time.Millisecond)
	for name, test := range map[string]struct {
		refusals []error
		options  []cw.ClientOption
		attempts int
		ok       bool
	}{
		"once":                 {[]error{ends}, nil, 2, true},
		"twice":                {[]error{ends, ends}, nil, 2, false},
		"after another":        {[]error{gone, ends, gone}, nil, 4, true},
		"without retries":      {[]error{ends}, []cw.ClientOption{cw.WithoutRetry()}, 1, false},
		"twice, interruptedly": {[]error{ends, ends}, []cw.ClientOption{cw.WithRetry(cw.RetryPolicy{Interrupted: true})}, 3, true},
	} {
		server := refusing(test.refusals...)
		client := dial(t, server.Start(t), test.options...)
		_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
		if (err == nil) != test.ok || len(server.Requests()) != test.attempts {
			t.Errorf("%s: %v after %d attempts", name, err, len(server.Requests()))
		}
		if err != nil && (!errors.Is(err, cw.ErrUnavailable) || errors.Is(err, context.Canceled)) {
			t.Errorf("%s: %v is of the wrong kind", name, err)
		}
	}
}

func TestAnAdmittedStreamIsNotTriedAgain(t *testing.T) {
	var streams atomic.Int64
	server := &fakeserver.Server{OnStream: func(stream pb.CorrectionService_CorrectStreamServer) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if streams.Add(1) == 1 {
			return refusal(t, codes.ResourceExhausted, time.Millisecond)
		}
		admission := &pb.CorrectStreamResponse_Admission{Admission: &pb.Admission{}}
		if err := stream.Send(&pb.CorrectStreamResponse{Frame: admission}); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "gone")
	}}
	client := dial(t, server.Start(t), cw.WithTransport(cw.Stream))
	_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
	if !errors.Is(err, cw.ErrUnavailable) || streams.Load() != 2 {
		t.Errorf("%v after %d streams", err, streams.Load())
	}
}
