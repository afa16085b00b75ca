package counterweight_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func applied(t *testing.T, weights []float32, mask []uint8, lengths ...int64) cw.Receipt {
	t.Helper()
	receipt, err := cw.Applied(weights, mask, lengths)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

func TestAppliedHasTheAnswerOfTheOtherClients(t *testing.T) {
	found := applied(t, []float32{1, 2, 0.5}, []uint8{1, 1, 1}, 3)
	want := cw.Receipt{Fingerprint: 0xb0ce7a2152b4026, Tokens: 3, ChangedTokens: 2, WeightExcess: 0.5}
	if found != want {
		t.Errorf("got %+v", found)
	}
	// A token with the weight 0 is one that the mask excludes.
	padded := applied(t, []float32{9, 1, 2, 0, 0.5, 7}, []uint8{0, 1, 1, 1, 1, 0}, 6)
	if padded != want {
		t.Errorf("got %+v", padded)
	}
	if ones := applied(t, nil, []uint8{1, 0, 1}, 3); ones.Tokens != 2 || ones.ChangedTokens != 0 {
		t.Errorf("got %+v", ones)
	}
}

func TestReceiptsOfPartsAddUp(t *testing.T) {
	weights, mask := []float32{1, 2, 3, 4, 5}, []uint8{1, 1, 1, 1, 1}
	whole := applied(t, weights, mask, 2, 0, 3)
	sum := applied(t, weights[2:], mask[2:], 3)
	sum.Add(applied(t, weights[:2], mask[:2], 2))
	if sum != whole {
		t.Errorf("got %+v, want %+v", sum, whole)
	}
}

func TestAppliedRefusesLengthsThatDoNotFit(t *testing.T) {
	for _, lengths := range [][]int64{{1}, {1, 2}, {-1, 3}, nil} {
		_, err := cw.Applied(nil, []uint8{1, 1}, lengths)
		var invalid *cw.InvalidRequestError
		if !errors.As(err, &invalid) {
			t.Errorf("%v: got %v", lengths, err)
		}
	}
	if _, err := cw.Applied([]float32{1}, []uint8{1, 1}, []int64{2}); err == nil {
		t.Error("no error")
	}
}

func TestReportStepAnswersTheState(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	issued := applied(t, []float32{1.5, 1.5}, []uint8{1, 1}, 2)
	ones := applied(t, nil, []uint8{1, 1}, 2)
	report := &cw.StepReport{Run: "go", Step: 1, Tokens: 2, Issued: &issued, Applied: &issued, RequestID: "first"}
	state, warnings, err := client.ReportStep(background(t), report)
	if err != nil || state != cw.ReceiptUsed || len(warnings) != 0 {
		t.Errorf("got %v %v %v", state, warnings, err)
	}
	report = &cw.StepReport{Run: "go", Step: 2, Tokens: 2, Issued: &issued, Applied: &ones}
	state, warnings, err = client.ReportStep(background(t), report)
	if err != nil || state != cw.ReceiptUnused || len(warnings) != 1 {
		t.Errorf("got %v %v %v", state, warnings, err)
	}
	report = &cw.StepReport{Run: "go", Step: 3, Issued: &issued, NumReports: 2}
	state, _, err = client.ReportStep(background(t), report)
	if err != nil || state != cw.ReceiptUnknown {
		t.Errorf("got %v %v", state, err)
	}
	_, _, err = client.ReportStep(background(t), &cw.StepReport{Step: 1, Tokens: -1})
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) || len(invalid.Violations) != 2 {
		t.Errorf("got %v", err)
	}
}

func TestReportStepOfAnOldServer(t *testing.T) {
	client := dial(t, (&fakeserver.Server{}).Start(t))
	_, _, err := client.ReportStep(background(t), &cw.StepReport{Run: "go"})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
	if _, _, err := client.ReportStep(background(t), nil); err == nil {
		t.Error("no error")
	}
}
