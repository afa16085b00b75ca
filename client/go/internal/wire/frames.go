package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

const (
	frameChunk  protowire.Number = 2
	chunkTensor protowire.Number = 1
	chunkOffset protowire.Number = 2
	chunkData   protowire.Number = 3

	answerAdmission protowire.Number = 1
	answerResult    protowire.Number = 2
	answerChunk     protowire.Number = 3
	answerSummary   protowire.Number = 4
)

// A Header is the first message up.
type Header struct {
	// Request is the request, its tensors without data.
	Request *pb.CorrectRequest
}

// Encode implements Encoder.
func (h *Header) Encode() (mem.BufferSlice, error) {
	message := &pb.CorrectStreamRequest{Frame: &pb.CorrectStreamRequest_Header{Header: h.Request}}
	bytes, err := proto.Marshal(message)
	return mem.BufferSlice{mem.SliceBuffer(bytes)}, err
}

// A Chunk is a run of bytes of one tensor.
type Chunk struct {
	Tensor int
	Offset int
	Data   []byte
	// Lease is what gRPC has the bytes by.
	Lease *Lease
}

// Encode implements Encoder.
func (c *Chunk) Encode() (mem.BufferSlice, error) {
	size := protowire.SizeTag(chunkTensor) + protowire.SizeVarint(uint64(c.Tensor)) +
		protowire.SizeTag(chunkOffset) + protowire.SizeVarint(uint64(c.Offset)) +
		protowire.SizeTag(chunkData) + protowire.SizeBytes(len(c.Data))
	head := make([]byte, 0, mostFraming)
	head = protowire.AppendTag(head, frameChunk, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(size))
	head = protowire.AppendTag(head, chunkTensor, protowire.VarintType)
	head = protowire.AppendVarint(head, uint64(c.Tensor))
	head = protowire.AppendTag(head, chunkOffset, protowire.VarintType)
	head = protowire.AppendVarint(head, uint64(c.Offset))
	head = protowire.AppendTag(head, chunkData, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(c.Data)))
	return c.Lease.lend(mem.BufferSlice{mem.SliceBuffer(head)}, c.Data), nil
}

// A Receiver takes the frames of the stream down.
type Receiver interface {
	Admission(*pb.Admission) error
	// Result takes a CorrectResponse.
	Result(message Cursor) error
	// Chunk takes bytes of a tensor of the result.
	Chunk(tensor, offset uint64, data Cursor) error
	Summary(*pb.StreamSummary) error
}

// A Frame is a message down, which goes to its receiver. A frame of a newer contract is
// left out.
type Frame struct {
	To Receiver
}

// Decode implements Decoder.
func (f *Frame) Decode(message Cursor) error {
	var kind protowire.Number
	var payload Cursor
	for {
		field, more, err := message.Next()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		// The last field of a oneof counts.
		if field.Type == protowire.BytesType && field.Number <= answerSummary {
			kind, payload = field.Number, field.Payload
		}
	}
	switch kind {
	case answerAdmission:
		admission := new(pb.Admission)
		if err := proto.Unmarshal(payload.Append(nil), admission); err != nil {
			return err
		}
		return f.To.Admission(admission)
	case answerResult:
		return f.To.Result(payload)
	case answerChunk:
		return f.chunk(payload)
	case answerSummary:
		summary := new(pb.StreamSummary)
		if err := proto.Unmarshal(payload.Append(nil), summary); err != nil {
			return err
		}
		return f.To.Summary(summary)
	}
	return nil
}

func (f *Frame) chunk(message Cursor) error {
	var tensor, offset uint64
	var data Cursor
	for {
		field, more, err := message.Next()
		if err != nil {
			return err
		}
		if !more {
			return f.To.Chunk(tensor, offset, data)
		}
		switch field.Number {
		case chunkTensor:
			tensor = field.Value
		case chunkOffset:
			offset = field.Value
		case chunkData:
			data = field.Payload
		}
	}
}
