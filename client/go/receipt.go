package counterweight

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// A Receipt has sums over weights and a mask. Those of parts add up to those of all their rows;
// order of rows, padding, micro-batches and ranks change none of them, but for the rounding of
// WeightExcess. A token counts if its mask is not 0 and its weight is not 0.
type Receipt struct {
	// Fingerprint is of the weights' bits at counted tokens; the contract has its formula. Sums
	// are modulo 2^64.
	Fingerprint uint64
	// Tokens are the counted tokens.
	Tokens int64
	// ChangedTokens are counted tokens with a weight other than 1.
	ChangedTokens int64
	// DroppedTokens are tokens of the response mask that do not count; 0 where it is not known.
	DroppedTokens int64
	// WeightExcess is the sum of w - 1 over the counted tokens.
	WeightExcess float64
}

// Applied returns the receipt of weights and a mask where a loss is multiplied by them: those of
// rows of the lengths, one after the other. weights may be nil: all are 1. An
// *InvalidRequestError names lengths that do not fit.
func Applied(weights []float32, mask []uint8, lengths []int64) (Receipt, error) {
	var receipt Receipt
	if weights != nil && len(weights) != len(mask) {
		return receipt, refuse("", Violation{"weights", fmt.Sprintf("has %d elements, and mask %d", len(weights), len(mask))})
	}
	begin := 0
	for _, length := range lengths {
		if length < 0 || length > int64(len(mask)-begin) {
			return Receipt{}, refuse("", Violation{"lengths", "must be >= 0 and add up to the mask's elements"})
		}
		end := begin + int(length)
		var row []float32
		if weights != nil {
			row = weights[begin:end]
		}
		receipt.addRow(row, mask[begin:end])
		begin = end
	}
	if begin != len(mask) {
		return Receipt{}, refuse("", Violation{"lengths", "must be >= 0 and add up to the mask's elements"})
	}
	return receipt, nil
}

// Add adds another part's.
func (r *Receipt) Add(part Receipt) {
	r.Fingerprint += part.Fingerprint
	r.Tokens += part.Tokens
	r.ChangedTokens += part.ChangedTokens
	r.DroppedTokens += part.DroppedTokens
	r.WeightExcess += part.WeightExcess
}

func (r *Receipt) addRow(weights []float32, mask []uint8) {
	const golden = 0x9E3779B97F4A7C15
	var sum, tokens uint64
	for t, keep := range mask {
		w := float32(1)
		if weights != nil {
			w = weights[t]
		}
		if keep == 0 || w == 0 {
			continue
		}
		tokens++
		if w != 1 {
			r.ChangedTokens++
		}
		r.WeightExcess += float64(w) - 1
		sum += mix(uint64(math.Float32bits(w))<<20 ^ tokens*golden)
	}
	if tokens == 0 {
		return
	}
	r.Fingerprint += mix(sum + tokens)
	r.Tokens += int64(tokens)
}

func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}

// A StepReport is what a trainer reports of an optimizer step.
type StepReport struct {
	// Run and Step are the labels of the step; both are required.
	Run  string
	Step int64
	// Tokens are those of the response masks of the batches that this process trained on,
	// corrected or not.
	Tokens int64
	// Issued is of the weights and masks that this process received. Nil: none.
	Issued *Receipt
	// Applied is of those that its losses were multiplied by. Nil: no loss ran here.
	Applied *Receipt
	// SkippedBatches were trained without a correction, by reason.
	SkippedBatches map[string]int64
	// RatioAllOne: every ratio of current to old log-probs was exactly 1; true in a process without
	// tokens, which leaves the question to the others.
	RatioAllOne bool
	// NumReports are the reports that the step has, of all processes that receive or apply
	// weights. All go to one server: spread over several, the step counts as incomplete on each.
	// 0: 1.
	NumReports int64
	// RequestID identifies the report; one that was counted before counts no more. Empty: the
	// client makes one.
	RequestID string
}

// A ReceiptState says whether a step's losses used the weights that it received.
type ReceiptState int

// States of a step. A later server may know others.
const (
	// ReceiptUnknown: a side is missing, or reports of other processes are.
	ReceiptUnknown ReceiptState = iota
	// ReceiptUsed: the same weights and mask, bit for bit.
	ReceiptUsed
	// ReceiptUnused: weights of 1, or a mask that ignores the rules.
	ReceiptUnused
	// ReceiptRounded: the weights were rounded.
	ReceiptRounded
	// ReceiptReplaced: other weights, or another mask.
	ReceiptReplaced
)

// ReportStep reports an optimizer step: what its losses used, beside what it had been given. It
// returns the state of the step, and sentences about one that is not ReceiptUsed. Errors are those
// of Correct, with the code codes.Unimplemented from a server without the feature "report_step".
func (c *Client) ReportStep(ctx context.Context, report *StepReport) (ReceiptState, []string, error) {
	if report == nil {
		return ReceiptUnknown, nil, refuse("", Violation{"ReportStep", "needs a report"})
	}
	request := &pb.ReportStepRequest{
		RequestId:      report.RequestID,
		Labels:         &pb.Labels{Run: report.Run, Step: &report.Step},
		Tokens:         report.Tokens,
		Issued:         receiptMessage(report.Issued),
		Applied:        receiptMessage(report.Applied),
		SkippedBatches: report.SkippedBatches,
		RatioAllOne:    report.RatioAllOne,
	}
	if request.RequestId == "" {
		request.RequestId = newID()
	}
	if report.NumReports != 0 {
		request.NumReports = &report.NumReports
	}
	var answer *pb.ReportStepResponse
	err := c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.ReportStep(ctx, request, options...)
		return err
	})
	if err != nil {
		return ReceiptUnknown, nil, err
	}
	return ReceiptState(answer.GetState()), answer.GetWarnings(), nil
}

func receiptMessage(receipt *Receipt) *pb.Receipt {
	if receipt == nil {
		return nil
	}
	return &pb.Receipt{
		Fingerprint:   receipt.Fingerprint,
		Tokens:        receipt.Tokens,
		ChangedTokens: receipt.ChangedTokens,
		DroppedTokens: receipt.DroppedTokens,
		WeightExcess:  receipt.WeightExcess,
	}
}
