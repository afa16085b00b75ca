package counterweight_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
)

func tensor(role pb.TensorRole, dtype pb.DType, size int) *pb.Tensor {
	return &pb.Tensor{Role: role, Dtype: dtype, Data: make([]byte, size)}
}

func keepMask(size int) *pb.Tensor {
	return tensor(pb.TensorRole_TENSOR_ROLE_KEEP_MASK, pb.DType_D_TYPE_U8, size)
}

func TestAnAnswerThatBreaksTheContractIsInternal(t *testing.T) {
	weights := pb.TensorRole_TENSOR_ROLE_WEIGHTS
	for name, tensors := range map[string][]*pb.Tensor{
		"a short tensor":   {keepMask(2)},
		"a long tensor":    {keepMask(4)},
		"a tensor twice":   {keepMask(3), keepMask(3)},
		"another type":     {tensor(weights, pb.DType_D_TYPE_F16, 6)},
		"an input":         {tensor(pb.TensorRole_TENSOR_ROLE_ADVANTAGES, pb.DType_D_TYPE_F32, 12)},
		"too many tensors": {keepMask(3), keepMask(3), keepMask(3), keepMask(3), keepMask(3), keepMask(3)},
	} {
		server := &fakeserver.Server{
			OnCorrect: func(context.Context, *pb.CorrectRequest) (*pb.CorrectResponse, error) {
				return &pb.CorrectResponse{Tensors: tensors}, nil
			},
		}
		client := dial(t, server.Start(t))
		_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "cannot read the server's answer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// frames of a stream down.
var (
	admission = &pb.CorrectStreamResponse{Frame: &pb.CorrectStreamResponse_Admission{Admission: &pb.Admission{}}}
	summary   = &pb.CorrectStreamResponse{Frame: &pb.CorrectStreamResponse_Summary{Summary: &pb.StreamSummary{}}}
	newer     = &pb.CorrectStreamResponse{}
)

func result(tensors ...*pb.Tensor) *pb.CorrectStreamResponse {
	for _, tensor := range tensors {
		tensor.Data = nil
	}
	answer := &pb.CorrectResponse{RequestId: "id", Tensors: tensors}
	return &pb.CorrectStreamResponse{Frame: &pb.CorrectStreamResponse_Result{Result: answer}}
}

func chunk(tensor uint32, offset uint64, size int) *pb.CorrectStreamResponse {
	data := &pb.Chunk{Tensor: tensor, Offset: offset, Data: make([]byte, size)}
	return &pb.CorrectStreamResponse{Frame: &pb.CorrectStreamResponse_Chunk{Chunk: data}}
}

// telling sends the frames, the admission alone before it has read the whole upload.
func telling(frames ...*pb.CorrectStreamResponse) *fakeserver.Server {
	return &fakeserver.Server{OnStream: func(stream pb.CorrectionService_CorrectStreamServer) error {
		for _, frame := range frames {
			if err := stream.Send(frame); err != nil {
				return err
			}
			for frame == admission {
				if _, err := stream.Recv(); err != nil {
					break
				}
			}
		}
		return nil
	}}
}

func TestAStreamThatBreaksTheContractIsInternal(t *testing.T) {
	full := result(keepMask(3))
	for name, test := range map[string]struct {
		frames []*pb.CorrectStreamResponse
		good   bool
	}{
		"all in order":          {[]*pb.CorrectStreamResponse{admission, full, chunk(0, 0, 2), chunk(0, 2, 1), summary}, true},
		"frames of a newer":     {[]*pb.CorrectStreamResponse{newer, admission, newer, full, chunk(0, 0, 3), newer, summary}, true},
		"nothing":               {nil, false},
		"no result":             {[]*pb.CorrectStreamResponse{admission}, false},
		"no summary":            {[]*pb.CorrectStreamResponse{admission, full, chunk(0, 0, 3)}, false},
		"two admissions":        {[]*pb.CorrectStreamResponse{admission, admission, full, chunk(0, 0, 3), summary}, false},
		"two results":           {[]*pb.CorrectStreamResponse{admission, full, full, chunk(0, 0, 3), summary}, false},
		"a result too early":    {[]*pb.CorrectStreamResponse{full, admission, chunk(0, 0, 3), summary}, false},
		"a chunk too early":     {[]*pb.CorrectStreamResponse{admission, chunk(0, 0, 3), full, summary}, false},
		"a gap":                 {[]*pb.CorrectStreamResponse{admission, full, chunk(0, 1, 2), summary}, false},
		"a byte too many":       {[]*pb.CorrectStreamResponse{admission, full, chunk(0, 0, 4), summary}, false},
		"a byte too few":        {[]*pb.CorrectStreamResponse{admission, full, chunk(0, 0, 2), summary}, false},
		"another tensor":        {[]*pb.CorrectStreamResponse{admission, full, chunk(1, 0, 3), summary}, false},
		"more after the end":    {[]*pb.CorrectStreamResponse{admission, full, chunk(0, 0, 3), summary, chunk(0, 3, 0)}, false},
		"a summary too early":   {[]*pb.CorrectStreamResponse{admission, summary, full, chunk(0, 0, 3)}, false},
		"two tensors of a kind": {[]*pb.CorrectStreamResponse{admission, result(keepMask(3), keepMask(3)), summary}, false},
	} {
		client := dial(t, telling(test.frames...).Start(t), cw.WithTransport(cw.Stream))
		_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
		if test.good && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.good && (status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "cannot read the server's answer")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOlderServerBehindTheSameAddressTakesWhatItCan(t *testing.T) {
	server := &fakeserver.Server{
		OnInfo: func() (*pb.GetServerInfoResponse, error) {
			return &pb.GetServerInfoResponse{Features: []string{"stream"}}, nil
		},
		OnCorrect: func(_ context.Context, request *pb.CorrectRequest) (*pb.CorrectResponse, error) {
			return maskAnswer(request), nil
		},
	}
	client := dial(t, server.Start(t), cw.WithoutRetry())
	batch := twoLogProbs(512, 512)
	if _, err := client.Correct(background(t), batch, cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
	_, err := client.Correct(background(t), batch, cw.Preset("token_tis"), cw.Via(cw.Stream))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
	server = &fakeserver.Server{OnCorrect: server.OnCorrect} // it does not list its features
	client = dial(t, server.Start(t))
	if _, err := client.Correct(background(t), batch, cw.Preset("token_tis")); err != nil {
		t.Error(err)
	}
}
