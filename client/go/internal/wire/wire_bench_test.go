package wire

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

const benchPositions = 1 << 20

func BenchmarkEncode(b *testing.B) {
	data := make([]byte, 9*benchPositions)
	tensors := []Tensor{
		{pb.TensorRole_TENSOR_ROLE_RESPONSE_MASK, pb.DType_D_TYPE_U8, data[:benchPositions]},
		{pb.TensorRole_TENSOR_ROLE_OLD_LOG_PROBS, pb.DType_D_TYPE_F32, data[benchPositions : 5*benchPositions]},
		{pb.TensorRole_TENSOR_ROLE_ROLLOUT_LOG_PROBS, pb.DType_D_TYPE_F32, data[5*benchPositions:]},
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		var lease Lease
		for range b.N {
			encoded, err := (&Request{Head: &pb.CorrectRequest{}, Tensors: tensors, Lease: &lease}).Encode()
			if err != nil {
				b.Fatal(err)
			}
			encoded.Free()
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		message := &pb.CorrectRequest{}
		for _, tensor := range tensors {
			message.Tensors = append(message.Tensors, &pb.Tensor{Role: tensor.Role, Dtype: tensor.DType, Data: tensor.Data})
		}
		for range b.N {
			if _, err := proto.Marshal(message); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	weights, keep := make([]byte, 4*benchPositions), make([]byte, benchPositions)
	encoded, err := proto.Marshal(&pb.CorrectResponse{
		Metrics: map[string]float64{"kl": 1, "k3": 2},
		Tensors: []*pb.Tensor{
			{Role: pb.TensorRole_TENSOR_ROLE_WEIGHTS, Dtype: pb.DType_D_TYPE_F32, Data: weights},
			{Role: pb.TensorRole_TENSOR_ROLE_KEEP_MASK, Dtype: pb.DType_D_TYPE_U8, Data: keep},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	// As HTTP/2 brings it.
	var frames mem.BufferSlice
	for rest := encoded; len(rest) > 0; {
		n := min(16<<10, len(rest))
		frames, rest = append(frames, mem.SliceBuffer(rest[:n])), rest[n:]
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		var names Names
		for range b.N {
			var response Response
			if err := response.Read(NewCursor(frames), &names); err != nil {
				b.Fatal(err)
			}
			if response.Outputs[0].Data.Read(weights) != nil || response.Outputs[1].Data.Read(keep) != nil {
				b.Fatal("the tensors are too short")
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			var response pb.CorrectResponse
			if err := proto.Unmarshal(frames.Materialize(), &response); err != nil {
				b.Fatal(err)
			}
		}
	})
}
