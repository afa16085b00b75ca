package wire

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

const (
	responseTensors protowire.Number = 2
	responseMetrics protowire.Number = 4
	entryKey        protowire.Number = 1
	entryValue      protowire.Number = 2
	// MostOutputs is how many tensors an answer can have: one of each role.
	MostOutputs = 5
)

// An Output is a tensor of an answer.
type Output struct {
	Role  pb.TensorRole
	DType pb.DType
	// Data is read where it lies, which must happen before Decode returns.
	Data Cursor
	// Shared is the range that the bytes lie in instead of Data.
	Shared *pb.SharedMemoryRange
}

// A Response is a CorrectResponse with its tensors and metrics outside of Head.
type Response struct {
	Head    pb.CorrectResponse
	Metrics map[string]float64
	Outputs []Output

	outputs [MostOutputs]Output
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Read reads the message.
func (r *Response) Read(message Cursor, names *Names) error {
	buffer := scratch.Get().(*[]byte)
	defer scratch.Put(buffer)
	rest := (*buffer)[:0]
	r.Outputs = r.outputs[:0]
	for {
		field, more, err := message.Next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch {
		case field.Number == responseTensors && field.Type == protowire.BytesType:
			if len(r.Outputs) == MostOutputs {
				return fmt.Errorf("the answer has more than %d tensors", MostOutputs)
			}
			output, err := readOutput(field.Payload)
			if err != nil {
				return err
			}
			r.Outputs = append(r.Outputs, output)
		case field.Number == responseMetrics && field.Type == protowire.BytesType:
			if err := r.readMetric(field.Payload, names); err != nil {
				return err
			}
		default:
			rest = field.Append(rest)
		}
	}
	*buffer = rest
	return proto.Unmarshal(rest, &r.Head)
}

func readOutput(message Cursor) (output Output, err error) {
	for {
		field, more, err := message.Next()
		if err != nil || !more {
			return output, err
		}
		switch field.Number {
		case tensorRole:
			output.Role = pb.TensorRole(field.Value)
		case tensorDType:
			output.DType = pb.DType(field.Value)
		case tensorData:
			output.Data = field.Payload
		case tensorShared:
			output.Shared = new(pb.SharedMemoryRange)
			if err := proto.Unmarshal(field.Payload.Append(nil), output.Shared); err != nil {
				return output, err
			}
		}
	}
}

func (r *Response) readMetric(message Cursor, names *Names) error {
	var space [128]byte
	key, value := space[:0], 0.0
	for {
		field, more, err := message.Next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch field.Number {
		case entryKey:
			key = field.Payload.Append(key[:0])
		case entryValue:
			value = field.Float64()
		}
	}
	if r.Metrics == nil {
		r.Metrics = make(map[string]float64, 48)
	}
	r.Metrics[names.Of(key)] = value
	return nil
}
