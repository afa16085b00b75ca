package counterweight

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/sharedmemory"
)

// Correct corrects one batch, and computes its policy loss and gradient if the method has a
// loss. When it returns, the batch and the options are not looked at any more.
//
// It ends when ctx does, here and at the server; without a deadline in ctx, after the
// client's timeout. What the server did not admit is tried again, see RetryPolicy. Errors:
//
//   - *InvalidRequestError: the request is wrong; Violations lists every wrong field.
//   - *OverloadedError: the server has no room, or the request exceeds its limits.
//   - ErrUnavailable, by errors.Is: no server answers, or it is draining.
//   - context.DeadlineExceeded, context.Canceled, by errors.Is: the context ended.
//   - ErrClosed, by errors.Is: Close was called.
//   - *CallError: anything else, and by errors.As any of the above; see its Code.
func (c *Client) Correct(
	ctx context.Context, batch *Batch, method Method, options ...Option,
) (*Result, error) {
	call, err := c.newCall(batch, method, options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	var result *Result
	err = c.retrying(ctx, &call.attempts, call.transport, call.head.GetRequestId(), func() (err error) {
		result, err = c.attempt(ctx, call)
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// attempt sends a batch once.
func (c *Client) attempt(ctx context.Context, call *call) (*Result, error) {
	if c.router.needsCapabilities(call.transport, call.bytes) {
		if err := c.fetchCapabilities(ctx, call.head.GetRequestId()); err != nil {
			return nil, err
		}
	}
	way, err := c.router.choose(call.transport, call.bytes)
	if err != nil {
		return nil, err
	}
	if way == SharedMemory {
		result, err := c.correctShared(ctx, call)
		var why *sharedmemory.UnusableError
		if !errors.As(err, &why) {
			return result, err
		}
		if c.isClosed() {
			return nil, closedError(call.head.GetRequestId())
		}
		if way, err = c.router.withoutSharedMemory(call.transport, why); err != nil {
			return nil, err
		}
	}
	if way == Stream {
		return c.correctStream(ctx, call)
	}
	return c.correctUnary(ctx, call)
}

// fetchCapabilities calls GetServerInfo and gives the answer to the router.
func (c *Client) fetchCapabilities(ctx context.Context, requestID string) error {
	var trailer metadata.MD
	info, err := c.service.GetServerInfo(ctx, &pb.GetServerInfoRequest{}, grpc.Trailer(&trailer))
	if err != nil {
		err = c.failure(ctx, err, trailer, requestID)
		var call *CallError
		if !errors.As(err, &call) || call.Code != codes.Unimplemented {
			return err
		}
	}
	c.compareVersions(info.GetVersion())
	c.router.learn(readCapabilities(info))
	return nil
}
