package counterweight

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// A unaryCall is one attempt by one message.
type unaryCall struct {
	call     *call
	names    *wire.Names
	lease    wire.Lease
	request  wire.Request
	response wire.Response
	result   *Result
	err      error

	trailer metadata.MD
	options [2]grpc.CallOption
}

// ownCodec is an option of each call that has a batch.
var ownCodec = grpc.ForceCodecV2(wire.Codec{})

// Encode implements wire.Encoder.
func (u *unaryCall) Encode() (mem.BufferSlice, error) {
	u.request = wire.Request{Head: &u.call.head, Tensors: u.call.tensors, Lease: &u.lease}
	return u.request.Encode()
}

// Decode implements wire.Decoder. An error is kept: gRPC would wrap it in one of its own.
func (u *unaryCall) Decode(message wire.Cursor) error {
	u.err = u.read(message)
	return nil
}

func (u *unaryCall) read(message wire.Cursor) error {
	if err := u.response.Read(message, u.names); err != nil {
		return err
	}
	if err := u.call.check(&u.response); err != nil {
		return err
	}
	for i := range u.response.Outputs {
		output := &u.response.Outputs[i]
		to, err := u.call.place(u.result, output.Role, output.DType)
		if err != nil {
			return err
		}
		if output.Data.Len() != len(to) {
			return fmt.Errorf("%v has %d bytes instead of %d", output.Role, output.Data.Len(), len(to))
		}
		if err := output.Data.Read(to); err != nil {
			return err
		}
	}
	u.result.fill(&u.response)
	return nil
}

func (c *Client) correctUnary(ctx context.Context, call *call) (*Result, error) {
	// The result is its own, or it would keep the batch for as long as the caller has it.
	attempt := &unaryCall{call: call, names: &c.names, result: &Result{}}
	call.report(0)
	attempt.options = [...]grpc.CallOption{ownCodec, grpc.Trailer(&attempt.trailer)}
	err := c.conn.Invoke(ctx, pb.CorrectionService_Correct_FullMethodName, attempt, attempt, attempt.options[:]...)
	if err != nil {
		c.connections.settle(&attempt.lease)
		return nil, c.failure(ctx, err, attempt.trailer, call.head.GetRequestId())
	}
	if attempt.err != nil {
		return nil, unreadable(attempt.err, call.head.GetRequestId())
	}
	call.report(call.bytes)
	return attempt.result, call.finish(attempt.result)
}
