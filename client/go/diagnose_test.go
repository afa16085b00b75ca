package counterweight_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestDiagnoseNamesAShift(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := raggedBatch(16, 40)
	late := batch.RolloutLogProbs
	batch.OldLogProbs = append([]float32{-0.5}, late[:len(late)-1]...)
	batch.CurrentLogProbs, batch.Advantages = nil, nil
	found, err := client.Diagnose(context.Background(), batch, cw.RequestID("the-id"))
	if err != nil {
		t.Fatal(err)
	}
	if found.RequestID != "the-id" || found.Tokens == 0 || found.ExaminedTokens != found.Tokens {
		t.Errorf("got %+v", found)
	}
	if len(found.Findings) != 1 || found.Findings[0].Name != "shifted" {
		t.Fatalf("got %+v", found.Findings)
	}
	shifted := found.Findings[0]
	if shifted.Severity != cw.SeverityError || shifted.Stream != "rollout_log_probs" {
		t.Errorf("got %+v", shifted)
	}
	why := found.Attribution
	if why.GetTokens() != found.Tokens || why.GetCauses().GetK3() <= 0 || why.GetCauses().K3Update != nil {
		t.Errorf("got %+v", why)
	}
	// The last token of each row has a neighbour of another row.
	if !(shifted.Repaired < 0.25*shifted.Observed) || shifted.Sequence < 0 {
		t.Errorf("got %+v", shifted)
	}
}

func TestDiagnoseDescribesShadows(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := raggedBatch(16, 40)
	found, err := client.Diagnose(context.Background(), batch,
		cw.WithShadows(cw.Preset("token_tis"), cw.Preset("none")))
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Shadows) != 2 || len(found.Warnings) != 0 {
		t.Fatalf("got %+v", found)
	}
	result, err := client.Correct(context.Background(), batch, cw.Preset("token_tis"))
	if err != nil {
		t.Fatal(err)
	}
	tis, none := found.Shadows[0], found.Shadows[1]
	if tis.GetMethod() != "token_tis" || tis.GetTokens() != found.Tokens ||
		tis.GetEffectiveSampleSize() != result.Metrics["effective_sample_size"] {
		t.Errorf("got %+v", tis)
	}
	if none.EffectiveSampleSize != nil || !(none.GetCosine() > 0 && none.GetCosine() <= 1) {
		t.Errorf("got %+v", none)
	}
	_, err = client.Diagnose(context.Background(), batch, cw.WithShadows(nil))
	var wrong *cw.InvalidRequestError
	if !errors.As(err, &wrong) || wrong.Violations[0].Field != "Shadows[0]" {
		t.Errorf("got %v", err)
	}
	_, err = client.Correct(context.Background(), batch, cw.Preset("none"), cw.WithShadows(cw.Preset("none")))
	if !errors.As(err, &wrong) || wrong.Violations[0].Field != "shadows" {
		t.Errorf("got %v", err)
	}
}

func TestDiagnoseReadsWhatIsAbsent(t *testing.T) {
	fake := &fakeserver.Server{}
	fake.OnDiagnose = func(request *pb.DiagnoseRequest) (*pb.DiagnoseResponse, error) {
		bytes := 0
		for _, tensor := range request.GetTensors() {
			bytes += len(tensor.GetData())
		}
		if len(request.GetTensors()) != 5 || bytes != (4*4+1)*16*40 {
			t.Errorf("got %d tensors of %d bytes", len(request.GetTensors()), bytes)
		}
		return &pb.DiagnoseResponse{Findings: []*pb.Finding{
			{Name: "new"}, {Name: "old", Sequence: proto.Int64(0), Position: proto.Int64(0), Observed: proto.Float64(0)},
		}}, nil
	}
	client := dial(t, fake.Start(t))
	found, err := client.Diagnose(context.Background(), raggedBatch(16, 40))
	if err != nil {
		t.Fatal(err)
	}
	first, second := found.Findings[0], found.Findings[1]
	if !math.IsNaN(first.Observed) || first.Sequence != -1 || first.Position != -1 || first.Stream != "" {
		t.Errorf("got %+v", first)
	}
	if found.Attribution != nil {
		t.Errorf("got %+v", found.Attribution)
	}
	if second.Observed != 0 || !math.IsNaN(second.Repaired) || second.Sequence != 0 || second.Position != 0 {
		t.Errorf("got %+v", second)
	}
}

func TestDiagnoseOfAnOldServer(t *testing.T) {
	client := dial(t, (&fakeserver.Server{}).Start(t))
	_, err := client.Diagnose(context.Background(), raggedBatch(2, 3))
	var failed *cw.CallError
	if !errors.As(err, &failed) || failed.Code != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
	var invalid *cw.InvalidRequestError
	if _, err := client.Diagnose(context.Background(), nil); !errors.As(err, &invalid) {
		t.Errorf("got %v", err)
	}
}

func TestDiagnoseAuditsRows(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := threeTokens()
	found, err := client.Diagnose(background(t), batch, cw.WithAudit(&cw.Audit{}))
	if err != nil {
		t.Fatal(err)
	}
	if got := found.Audit; got.GetTokens() != 2 || got.Low != nil || got.GetSentence() == "" {
		t.Errorf("got %v", got)
	}
	if _, err := client.Correct(background(t), batch, cw.Preset("token_tis"), cw.WithAudit(&cw.Audit{})); err == nil ||
		!strings.Contains(err.Error(), "audit: is read by Diagnose alone") {
		t.Errorf("got %v", err)
	}
}
