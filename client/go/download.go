package counterweight

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// A download is the answer of a stream as it arrives; each chunk's bytes are copied once, to
// where they stay. It implements wire.Receiver.
type download struct {
	call     *call
	names    *wire.Names
	response wire.Response
	result   *Result
	admitted bool
	begun    bool
	ended    bool
	buffers  [wire.MostOutputs][]byte
	received [wire.MostOutputs]int
	// err is what breaks the contract; gRPC would wrap it in an error of its own.
	err error
}

// receive takes one message.
func (d *download) receive(stream grpc.ClientStream) error {
	if err := stream.RecvMsg(d); err != nil {
		return err
	}
	return d.err
}

// Decode implements wire.Decoder.
func (d *download) Decode(message wire.Cursor) error {
	if d.ended {
		d.err = errors.New("something came after the stream's summary")
		return nil
	}
	frame := wire.Frame{To: d}
	d.err = frame.Decode(message)
	return nil
}

// Admission implements wire.Receiver.
func (d *download) Admission(*pb.Admission) error {
	if d.admitted {
		return errors.New("a second admission came")
	}
	d.admitted = true
	return nil
}

// Result implements wire.Receiver.
func (d *download) Result(message wire.Cursor) error {
	if !d.admitted || d.begun {
		return errors.New("a result came before the admission, or a second one")
	}
	d.begun = true
	if err := d.response.Read(message, d.names); err != nil {
		return err
	}
	if err := d.call.check(&d.response); err != nil {
		return err
	}
	for i := range d.response.Outputs {
		output := &d.response.Outputs[i]
		if output.Data.Len() > 0 {
			return errors.New("a tensor of the stream's result has data outside of chunks")
		}
		to, err := d.call.place(d.result, output.Role, output.DType)
		if err != nil {
			return err
		}
		d.buffers[i] = to
	}
	d.result.fill(&d.response)
	return nil
}

// Chunk implements wire.Receiver.
func (d *download) Chunk(tensor, offset uint64, data wire.Cursor) error {
	if tensor >= uint64(len(d.response.Outputs)) {
		return fmt.Errorf("a chunk came for tensor %d, which is not in the result", tensor)
	}
	received := d.received[tensor]
	if offset != uint64(received) {
		return fmt.Errorf("a chunk of tensor %d begins at %d instead of %d", tensor, offset, received)
	}
	buffer := d.buffers[tensor]
	if data.Len() > len(buffer)-received {
		return fmt.Errorf("tensor %d has more than its %d bytes", tensor, len(buffer))
	}
	d.received[tensor] += data.Len()
	return data.Read(buffer[received:d.received[tensor]])
}

// Summary implements wire.Receiver.
func (d *download) Summary(summary *pb.StreamSummary) error {
	if !d.begun {
		return errors.New("a summary came before the result")
	}
	for i := range d.response.Outputs {
		if d.received[i] != len(d.buffers[i]) {
			return fmt.Errorf("tensor %d has %d of its %d bytes", i, d.received[i], len(d.buffers[i]))
		}
	}
	d.ended = true
	d.result.Timing = timing(summary.GetTiming())
	return nil
}

// end is called when the stream has ended with status OK.
func (d *download) end() error {
	if !d.ended {
		return errors.New("the stream ended before its summary came")
	}
	return nil
}
