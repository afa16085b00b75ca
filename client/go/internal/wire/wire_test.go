package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

func randomBytes(random *rand.Rand, length int) []byte {
	data := make([]byte, length)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// split is the data in pieces of random lengths, empty ones among them.
func split(random *rand.Rand, data []byte) (pieces mem.BufferSlice) {
	for len(data) > 0 {
		n := min(random.IntN(40), len(data))
		pieces = append(pieces, mem.SliceBuffer(data[:n]))
		data = data[n:]
	}
	return append(pieces, mem.SliceBuffer(nil))
}

func TestProtobufReadsWhatARequestEncodes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var lease Lease
	for _, length := range []int{0, 1, 127, 128, 1000, 100000} {
		upper := 2.0
		head := &pb.CorrectRequest{
			RequestId: "id",
			Method: &pb.Method{Method: &pb.Method_Preset{Preset: &pb.Preset{
				Name: "token_tis", Parameters: map[string]float64{"upper": upper},
			}}},
		}
		request := Request{Head: head, Lease: &lease, Tensors: []Tensor{
			{pb.TensorRole_TENSOR_ROLE_RESPONSE_MASK, pb.DType_D_TYPE_U8, randomBytes(random, length)},
			{pb.TensorRole_TENSOR_ROLE_OLD_LOG_PROBS, pb.DType_D_TYPE_F32, randomBytes(random, 4*length)},
		}}
		encoded, err := request.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var read pb.CorrectRequest
		if err := proto.Unmarshal(encoded.Materialize(), &read); err != nil {
			t.Fatal(err)
		}
		want := proto.Clone(head).(*pb.CorrectRequest)
		for _, tensor := range request.Tensors {
			want.Tensors = append(want.Tensors, &pb.Tensor{Role: tensor.Role, Dtype: tensor.DType, Data: tensor.Data})
		}
		if !proto.Equal(&read, want) {
			t.Errorf("%d positions: protobuf reads something else", length)
		}
		encoded.Free()
	}
	if lease.lent != 0 {
		t.Errorf("%d slices are lent still", lease.lent)
	}
}

func TestProtobufReadsWhatFramesEncode(t *testing.T) {
	var lease Lease
	data := randomBytes(rand.New(rand.NewPCG(1, 2)), 3000)
	for _, chunk := range []Chunk{{0, 0, data, &lease}, {5, 1 << 40, data[:1], &lease}, {1, 2, nil, &lease}} {
		encoded, err := chunk.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var read pb.CorrectStreamRequest
		if err := proto.Unmarshal(encoded.Materialize(), &read); err != nil {
			t.Fatal(err)
		}
		got := read.GetChunk()
		if int(got.GetTensor()) != chunk.Tensor || got.GetOffset() != uint64(chunk.Offset) || !bytes.Equal(got.GetData(), chunk.Data) {
			t.Errorf("protobuf reads tensor %d, offset %d", got.GetTensor(), got.GetOffset())
		}
		encoded.Free()
	}
}

func answer(random *rand.Rand) *pb.CorrectResponse {
	loss := -0.25
	return &pb.CorrectResponse{
		RequestId: "id", Loss: &loss, NonFiniteTokens: 1 << 40, NumericsVersion: 7, Backend: "cpu",
		Warnings: []string{"first", "second"}, Timing: &pb.Timing{ComputeSeconds: 0.5},
		Rules:   []*pb.RuleSummary{{Name: "mean_k3", DroppedTokens: 3, DroppedSequences: 2}},
		Metrics: map[string]float64{"kl": 0.125, "nan": math.Inf(1), "": 3},
		Tensors: []*pb.Tensor{
			{Role: pb.TensorRole_TENSOR_ROLE_WEIGHTS, Dtype: pb.DType_D_TYPE_F32, Data: randomBytes(random, 400)},
			{
				Role: pb.TensorRole_TENSOR_ROLE_KEEP_MASK, Dtype: pb.DType_D_TYPE_U8,
				SharedMemory: &pb.SharedMemoryRange{Handle: randomBytes(random, 16), Offset: 64, Length: 100},
			},
		},
	}
}

func TestAResponseIsReadAsProtobufWrote(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var names Names
	for range 200 {
		want := answer(random)
		encoded, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		// A field of a newer contract changes nothing.
		encoded = append(encoded, 0xfa, 0x7f, 1, 'x')
		var got Response
		if err := got.Read(NewCursor(split(random, encoded)), &names); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Metrics, want.GetMetrics()) || len(got.Outputs) != 2 {
			t.Fatalf("metrics %v, %d outputs", got.Metrics, len(got.Outputs))
		}
		weights := make([]byte, got.Outputs[0].Data.Len())
		if err := got.Outputs[0].Data.Read(weights); err != nil || !bytes.Equal(weights, want.GetTensors()[0].GetData()) {
			t.Fatalf("the weights are others: %v", err)
		}
		if !proto.Equal(got.Outputs[1].Shared, want.GetTensors()[1].GetSharedMemory()) {
			t.Fatalf("the range is %v", got.Outputs[1].Shared)
		}
		want.Metrics, want.Tensors = nil, nil
		got.Head.ProtoReflect().SetUnknown(nil)
		if !proto.Equal(&got.Head, want) {
			t.Fatalf("%v is not %v", &got.Head, want)
		}
	}
}

// frames are what a receiver was given.
type frames struct {
	admission *pb.Admission
	result    pb.CorrectResponse
	tensor    uint64
	offset    uint64
	data      []byte
	summary   *pb.StreamSummary
}

func (f *frames) Admission(admission *pb.Admission) error { f.admission = admission; return nil }
func (f *frames) Summary(summary *pb.StreamSummary) error { f.summary = summary; return nil }
func (f *frames) Result(message Cursor) error {
	return proto.Unmarshal(message.Append(nil), &f.result)
}

func (f *frames) Chunk(tensor, offset uint64, data Cursor) error {
	f.tensor, f.offset, f.data = tensor, offset, data.Append(nil)
	return nil
}

func TestFramesAreReadAsProtobufWrote(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	got := &frames{}
	chunk := &pb.Chunk{Tensor: 3, Offset: 1 << 33, Data: randomBytes(random, 500)}
	result := answer(random)
	for _, message := range []*pb.CorrectStreamResponse{
		{Frame: &pb.CorrectStreamResponse_Admission{Admission: &pb.Admission{ChunkBytes: 5}}},
		{Frame: &pb.CorrectStreamResponse_Result{Result: result}},
		{Frame: &pb.CorrectStreamResponse_Chunk{Chunk: chunk}},
		{Frame: &pb.CorrectStreamResponse_Summary{Summary: &pb.StreamSummary{SentBytes: 9}}},
		{},
	} {
		encoded, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		frame := Frame{To: got}
		if err := (Codec{}).Unmarshal(split(random, encoded), decoder{&frame}); err != nil {
			t.Fatal(err)
		}
	}
	if got.admission.GetChunkBytes() != 5 || !proto.Equal(&got.result, result) || got.summary.GetSentBytes() != 9 {
		t.Errorf("%+v", got)
	}
	if got.tensor != 3 || got.offset != 1<<33 || !bytes.Equal(got.data, chunk.GetData()) {
		t.Errorf("tensor %d, offset %d", got.tensor, got.offset)
	}
}

type decoder struct{ *Frame }

func FuzzResponse(f *testing.F) {
	encoded, err := proto.Marshal(answer(rand.New(rand.NewPCG(1, 2))))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded, uint64(1))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		var names Names
		var response Response
		err := response.Read(NewCursor(split(rand.New(rand.NewPCG(seed, 0)), data)), &names)
		var plain pb.CorrectResponse
		if err == nil && proto.Unmarshal(data, &plain) == nil && response.Head.GetBackend() != plain.GetBackend() {
			t.Errorf("%q is not %q", response.Head.GetBackend(), plain.GetBackend())
		}
		frame := Frame{To: &frames{}}
		_ = frame.Decode(NewCursor(mem.BufferSlice{mem.SliceBuffer(data)}))
	})
}

func TestALeaseWaitsForGRPC(t *testing.T) {
	var lease Lease
	lease.Wait(time.Hour) // nothing is lent
	chunk := Chunk{Data: make([]byte, 2000), Lease: &lease}
	first, _ := chunk.Encode()
	second, _ := chunk.Encode()
	begin := time.Now()
	lease.Wait(10 * time.Millisecond)
	if passed := time.Since(begin); passed < 10*time.Millisecond {
		t.Errorf("it waited %v for what is lent", passed)
	}
	first.Ref()
	first.Free()
	waited := make(chan struct{})
	go func() { lease.Wait(time.Hour); close(waited) }()
	second.Free()
	select {
	case <-waited:
		t.Error("it did not wait for the other slice")
	default:
	}
	first.Free()
	<-waited
}

func TestNamesAreBounded(t *testing.T) {
	var names Names
	for i := range 2 * mostNames {
		text := []byte{byte(i), byte(i >> 8), byte(i >> 16)}
		for range 2 { // new, then known
			if names.Of(text) != string(text) {
				t.Fatalf("%v has another name", text)
			}
		}
	}
	if len(names.known) != mostNames {
		t.Errorf("%d names are kept", len(names.known))
	}
}
