package counterweight

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

var streamDesc = &grpc.StreamDesc{StreamName: "CorrectStream", ServerStreams: true, ClientStreams: true}

func (c *Client) correctStream(ctx context.Context, call *call) (*Result, error) {
	// A stream that is left before its end needs its context cancelled.
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.conn.NewStream(streamCtx, streamDesc, pb.CorrectionService_CorrectStream_FullMethodName,
		ownCodec)
	if err != nil {
		return nil, c.streamFailure(ctx, err, nil, call)
	}
	download := &download{call: call, names: &c.names, result: &Result{}}
	var lease wire.Lease
	if err := c.converse(stream, call, download, &lease); err != nil {
		err = c.streamFailure(ctx, err, stream.Trailer(), call)
		cancel()
		c.connections.settle(&lease)
		return nil, err
	}
	call.report(call.bytes)
	return download.result, call.finish(download.result)
}

// streamFailure is the typed form of an error of gRPC's, or of what this package cannot read.
func (c *Client) streamFailure(ctx context.Context, err error, trailer metadata.MD, call *call) error {
	if _, ofGRPC := status.FromError(err); !ofGRPC {
		return unreadable(err, call.head.GetRequestId())
	}
	err = c.failure(ctx, err, trailer, call.head.GetRequestId())
	var failed *CallError
	if errors.As(err, &failed) {
		failed.viaStream = true
	}
	return err
}

// converse speaks the protocol of proto/README.md. Between admission and the last chunk up the
// server sends only the end of the stream, which sending notices, so one goroutine is enough.
func (c *Client) converse(stream grpc.ClientStream, call *call, download *download, lease *wire.Lease) error {
	err := call.withHeads(func() error { return send(stream, &wire.Header{Request: &call.head}) })
	if err != nil {
		return err
	}
	for !download.admitted { // a frame of a newer contract may precede it
		if err := download.receive(stream); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the stream ended before its admission came")
			}
			return err
		}
	}
	call.attempts.admitted = true
	call.report(0)
	if err := c.sendChunks(stream, call, lease); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		if err := download.receive(stream); err != nil {
			if errors.Is(err, io.EOF) {
				return download.end()
			}
			return err
		}
	}
}

// sendChunks sends the response mask first and whole, because losses divide by counts of it; then
// the others in blocks of the same positions, one after the other, so that the server can compute
// complete rows while later ones arrive.
func (c *Client) sendChunks(stream grpc.ClientStream, call *call, lease *wire.Lease) error {
	chunkBytes := c.settings.chunkBytes
	if known := c.router.capabilities(); known != nil && known.maxChunkBytes > 0 {
		chunkBytes = int(min(uint64(chunkBytes), known.maxChunkBytes))
	}
	var sent int64
	chunk := &wire.Chunk{}
	sendRange := func(tensor, begin, end int) error {
		for ; begin < end; begin += chunkBytes {
			*chunk = wire.Chunk{
				Tensor: tensor, Offset: begin, Lease: lease,
				Data: call.tensors[tensor].Data[begin:min(begin+chunkBytes, end)],
			}
			if err := send(stream, chunk); err != nil {
				return err
			}
			if sent += int64(len(chunk.Data)); sent < call.bytes {
				call.report(sent)
			}
		}
		return nil
	}
	mask, others := call.tensors[0], call.tensors[1:]
	positions := len(mask.Data)
	if err := sendRange(0, 0, positions); err != nil {
		return err
	}
	const width = 4 // of float32, which all others are
	step := max(1, chunkBytes/width)
	for first := 0; first < positions; first += step {
		last := min(first+step, positions)
		for i := range others {
			if err := sendRange(i+1, first*width, last*width); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends a message. That the stream has ended already is io.EOF; why it did is the
// error of the next message down.
func send(stream grpc.ClientStream, message wire.Encoder) error {
	err := stream.SendMsg(message)
	if !errors.Is(err, io.EOF) {
		return err
	}
	err = stream.RecvMsg(discard{})
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("the server ended the stream before it had all of it")
	}
	return err
}

type discard struct{}

// Decode implements wire.Decoder.
func (discard) Decode(wire.Cursor) error { return nil }
