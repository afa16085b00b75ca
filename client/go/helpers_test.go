package counterweight_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// patience is far above what anything here takes; only a hang reaches it.
const patience = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func background(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, target string, options ...cw.ClientOption) *cw.Client {
	t.Helper()
	client, err := cw.New(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// threeTokens is the batch of proto/README.md.
func threeTokens() *cw.Batch {
	return &cw.Batch{
		Shape:           [2]int{1, 3},
		RolloutLogProbs: []float32{-1, -2, -0.5},
		OldLogProbs:     []float32{-0.9, -2.1, -0.5},
		ResponseMask:    []uint8{1, 1, 0},
	}
}

// randomBatch has everything that a loss needs.
func randomBatch(sequences, length int) *cw.Batch {
	random := rand.New(rand.NewPCG(1, 2))
	positions := sequences * length
	batch := &cw.Batch{
		Shape:           [2]int{sequences, length},
		ResponseMask:    make([]uint8, positions),
		RolloutLogProbs: make([]float32, positions),
		OldLogProbs:     make([]float32, positions),
		CurrentLogProbs: make([]float32, positions),
		RefLogProbs:     make([]float32, positions),
		Advantages:      make([]float32, positions),
	}
	for i := range batch.ResponseMask {
		if random.Float32() < 0.9 {
			batch.ResponseMask[i] = 1
		}
		rollout := float32(-random.ExpFloat64())
		batch.RolloutLogProbs[i] = rollout
		batch.OldLogProbs[i] = rollout + 0.1*float32(random.NormFloat64())
		batch.CurrentLogProbs[i] = rollout + 0.1*float32(random.NormFloat64())
		batch.RefLogProbs[i] = rollout + 0.1*float32(random.NormFloat64())
		batch.Advantages[i] = float32(random.NormFloat64())
	}
	return batch
}

// twoLogProbs is what the plain presets need.
func twoLogProbs(sequences, length int) *cw.Batch {
	batch := randomBatch(sequences, length)
	batch.CurrentLogProbs, batch.RefLogProbs, batch.Advantages = nil, nil, nil
	return batch
}

// maskAnswer is the smallest answer to a request.
func maskAnswer(request *pb.CorrectRequest) *pb.CorrectResponse {
	var mask []byte
	for _, tensor := range request.GetTensors() {
		if tensor.GetRole() == pb.TensorRole_TENSOR_ROLE_RESPONSE_MASK {
			mask = tensor.GetData()
		}
	}
	return &pb.CorrectResponse{
		RequestId: request.GetRequestId(),
		Tensors: []*pb.Tensor{{
			Role: pb.TensorRole_TENSOR_ROLE_KEEP_MASK, Dtype: pb.DType_D_TYPE_U8, Data: mask,
		}},
	}
}
