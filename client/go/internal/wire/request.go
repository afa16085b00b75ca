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
	// Of everything but the bytes of a tensor or chunk, at most.
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

// A Request is a CorrectRequest whose tensors are framed around their bytes.
type Request struct {
	// Head is the message without tensors.
	Head    *pb.CorrectRequest
	Tensors []Tensor
}

// Encode implements Encoder. The bytes of the tensors are copied: gRPC may read a message
// after the call that sends it was cancelled, when the caller uses the memory for others.
func (r *Request) Encode() (mem.BufferSlice, error) {
	headSize := proto.Size(r.Head)
	size := headSize
	for i := range r.Tensors {
		size += mostFraming + len(r.Tensors[i].Data)
	}
	buffer := pool.Get(size)
	to, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], r.Head)
	if err != nil {
		pool.Put(buffer)
		return nil, err
	}
	for i := range r.Tensors {
		to = r.Tensors[i].append(to)
	}
	*buffer = to
	return pool.message(buffer), nil
}

// append appends the tensor as a field of a CorrectRequest.
func (t *Tensor) append(to []byte) []byte {
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
	return protowire.AppendBytes(to, t.Data)
}
