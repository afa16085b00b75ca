package counterweight

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/sharedmemory"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// correctShared sends ranges of shared memory instead of bytes. An UnusableError of package
// sharedmemory means that the batch has to go in another way.
func (c *Client) correctShared(ctx context.Context, call *call) (*Result, error) {
	exchange := &exchange{call: call, pool: c.router.sharedPool()}
	defer exchange.close()
	if err := exchange.place(ctx); err != nil {
		return nil, c.sharedFailure(ctx, err, call)
	}
	call.report(0)
	for {
		attempt := &sharedCall{exchange: exchange, names: &c.names, result: &Result{}}
		if err := attempt.encode(ctx); err != nil {
			return nil, c.sharedFailure(ctx, err, call)
		}
		exchange.waits = true
		var trailer metadata.MD
		err := c.conn.Invoke(ctx, pb.CorrectionService_Correct_FullMethodName, attempt, attempt,
			grpc.ForceCodecV2(wire.Codec{}), grpc.Trailer(&trailer))
		if err == nil {
			exchange.waits = false
			if attempt.err != nil {
				return nil, unreadable(attempt.err, call.head.GetRequestId())
			}
			call.report(call.bytes)
			return attempt.result, call.finish(attempt.result)
		}
		err = c.failure(ctx, err, trailer, call.head.GetRequestId())
		resend, unusable := exchange.shouldResend(err)
		if unusable != nil {
			return nil, unusable
		}
		if !resend {
			return nil, err
		}
	}
}

// sharedFailure is the typed form of what went wrong before the request was sent.
func (c *Client) sharedFailure(ctx context.Context, err error, call *call) error {
	var why *sharedmemory.UnusableError
	if !errors.As(err, &why) && ctx.Err() != nil {
		return contextError(ctx, call.head.GetRequestId())
	}
	return err
}

// A sharedCall is one message of an exchange and its answer.
type sharedCall struct {
	exchange *exchange
	names    *wire.Names
	message  []byte
	sent     map[pb.TensorRole]*pb.SharedMemoryRange
	response wire.Response
	result   *Result
	err      error
}

// encode makes the request, with handles that the server knows.
func (s *sharedCall) encode(ctx context.Context) error {
	call := s.exchange.call
	s.sent = make(map[pb.TensorRole]*pb.SharedMemoryRange, len(s.exchange.outputs))
	return call.withHeads(func() (err error) {
		for i, place := range s.exchange.inputs {
			if place.region == nil {
				continue // of a batch without positions
			}
			if call.head.Tensors[i].SharedMemory, err = s.exchange.describe(ctx, place); err != nil {
				return err
			}
		}
		for i := range s.exchange.outputs {
			output := &s.exchange.outputs[i]
			shared, err := s.exchange.describe(ctx, output.place)
			if err != nil {
				return err
			}
			s.sent[output.role] = shared
			call.head.Destinations = append(call.head.Destinations, &pb.Tensor{
				Role: output.role, Dtype: output.dtype, SharedMemory: shared,
			})
		}
		s.message, err = proto.Marshal(&call.head)
		return err
	})
}

// Encode implements wire.Encoder.
func (s *sharedCall) Encode() (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(s.message)}, nil
}

// Decode implements wire.Decoder; see unaryCall.
func (s *sharedCall) Decode(message wire.Cursor) error {
	s.err = s.read(message)
	return nil
}

func (s *sharedCall) read(message wire.Cursor) error {
	if err := s.response.Read(message, s.names); err != nil {
		return err
	}
	exchange := s.exchange
	if err := exchange.call.check(&s.response); err != nil {
		return err
	}
	for i := range s.response.Outputs {
		output := &s.response.Outputs[i]
		to, err := exchange.call.place(s.result, output.Role, output.DType)
		if err != nil {
			return err
		}
		switch {
		case output.Shared == nil && output.Data.Len() == len(to):
			err = output.Data.Read(to)
		case output.Shared != nil && proto.Equal(output.Shared, s.sent[output.Role]):
			err = exchange.take(output.Role, to)
		default:
			err = fmt.Errorf("%v is neither where it was to be nor in the message", output.Role)
		}
		if err != nil {
			return err
		}
	}
	s.result.fill(&s.response)
	return nil
}
