package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

const (
	requestTensors protowire.Number = 4
	tensorRole     protowire.Number = 1
	tensorDType    protowire.Number = 2
	tensorData     protowire.Number = 3
	tensorShared   protowire.Number = 4
	// Bound of the bytes around a tensor's or chunk's data.
	mostFraming = 64
)

// A Tensor is an input.
type Tensor struct {
	Role  pb.TensorRole
	DType pb.DType
	Data  []byte
}

// Head is the message without the bytes.
func (t *Tensor) Head() *pb.Tensor {
	return &pb.Tensor{Role: t.Role, Dtype: t.DType}
}

// A Request is a CorrectRequest with tensors framed around their bytes.
type Request struct {
	// Head is the message without tensors.
	Head    *pb.CorrectRequest
	Tensors []Tensor
	// Lease is what gRPC has the bytes by.
	Lease *Lease

	parts [2*MostInputs + 1]mem.Buffer
}

// Encode implements Encoder.
func (r *Request) Encode() (mem.BufferSlice, error) {
	size := proto.Size(r.Head)
	space := make([]byte, 0, size+mostFraming*len(r.Tensors))
	head, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(space, r.Head)
	if err != nil {
		return nil, err
	}
	message := mem.BufferSlice(r.parts[:0])
	for i := range r.Tensors {
		head = r.Tensors[i].appendHead(head)
		message = append(message, mem.SliceBuffer(head))
		message = r.Lease.lend(message, r.Tensors[i].Data)
		head = head[len(head):]
	}
	if len(r.Tensors) == 0 {
		message = append(message, mem.SliceBuffer(head))
	}
	return message, nil
}

// appendHead appends the fields before the bytes of the tensor in a CorrectRequest.
func (t *Tensor) appendHead(to []byte) []byte {
	size := protowire.SizeTag(tensorRole) + protowire.SizeVarint(uint64(t.Role)) +
		protowire.SizeTag(tensorDType) + protowire.SizeVarint(uint64(t.DType)) +
		protowire.SizeTag(tensorData) + protowire.SizeBytes(len(t.Data))
	to = protowire.AppendTag(to, requestTensors, protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(size))
	to = protowire.AppendTag(to, tensorRole, protowire.VarintType)
	to = protowire.AppendVarint(to, uint64(t.Role))
	to = protowire.AppendTag(to, tensorDType, protowire.VarintType)
	to = protowire.AppendVarint(to, uint64(t.DType))
	to = protowire.AppendTag(to, tensorData, protowire.BytesType)
	return protowire.AppendVarint(to, uint64(len(t.Data)))
}
