package counterweight

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// PartialSums are the sums of a part of a step, before they are rounded: Result.Sums of a call
// with WithPartialSums.
//
// Those of several parts add up, in any order and grouping and without an error, to those of one
// batch with all rows: number by number, as an all-reduce of SUM over Sums and one of MAX over
// Maxima do, of 8192 vectors at most. MergeSums does the same, and MetricsOf makes metrics of them.
// Lengths depend on the method and on whether tokens have versions; together they are at most 8 KiB
// with up to three rules.
type PartialSums struct {
	// Sums are numbers that add up.
	Sums []float64
	// Maxima are numbers; the largest of each counts.
	Maxima []float64
}

// StepTotals are what one Correct with all rows of a step would have answered, bit for bit,
// without arrays.
type StepTotals struct {
	// Sums are those of all parts.
	Sums *PartialSums
	// Loss is the sum of the parts' losses, if HasLoss.
	Loss    float64
	HasLoss bool
	// Metrics are as in Result. Nil if the parts had WithoutMetrics.
	Metrics map[string]float64
	// Rules are as in Result.
	Rules []RuleSummary
	// NonFiniteTokens is as in Result.
	NonFiniteTokens int64
	// Warnings are as in Result, but for those about tensors that the method does not read.
	Warnings []string
	// Staleness is as in Result.
	Staleness *Staleness
	// Counts are those that the method reads, for WithGlobalCounts of the calls that compute the
	// step's losses. Nil if it reads none.
	Counts *GlobalCounts
	// CountsRefusal is why the method's loss cannot divide by the counts of a step; empty if it can,
	// or has none.
	CountsRefusal string
}

// MergeSums adds the sums of parts of a step. Whatever the partition and order of the same rows,
// the result is the same but for the number of parts.
//
// The parts are of calls with one method and the same options, or what an all-reduce made of them.
// A message takes 32 parts of 8 KiB; more are merged in groups. Errors are those of Correct, with
// the code codes.Unimplemented from a server without the feature "partial_sums".
func (c *Client) MergeSums(ctx context.Context, parts []*PartialSums) (*PartialSums, error) {
	answer, err := c.merge(ctx, parts, nil)
	if err != nil {
		return nil, err
	}
	return partialSums(answer.GetSums()), nil
}

// MetricsOf returns what one Correct with all rows of a step would have answered, without arrays.
// It takes the step's sums, of MergeSums or of an all-reduce, and the method of the calls. Errors
// are those of MergeSums; *InvalidRequestError too if the sums are not of this method, or if their
// losses do not add up, because each divided by its own counts.
func (c *Client) MetricsOf(ctx context.Context, sums *PartialSums, method Method) (*StepTotals, error) {
	if method == nil {
		return nil, refuse("", Violation{"MetricsOf", "needs a method"})
	}
	message, violations := method.message()
	if len(violations) > 0 {
		return nil, refuse("", violations...)
	}
	answer, err := c.merge(ctx, []*PartialSums{sums}, message)
	if err != nil {
		return nil, err
	}
	return stepTotals(answer), nil
}

// merge sends the parts. Without a method they are added, no more.
func (c *Client) merge(
	ctx context.Context, parts []*PartialSums, method *pb.Method,
) (*pb.MergeSumsResponse, error) {
	request := &pb.MergeSumsRequest{Parts: make([]*pb.PartialSums, len(parts)), Method: method}
	var violations []Violation
	for i, part := range parts {
		if part == nil {
			violations = append(violations, Violation{
				fmt.Sprintf("parts[%d]", i), "is nil: a Result has Sums if its call had WithPartialSums",
			})
			continue
		}
		request.Parts[i] = &pb.PartialSums{Sums: part.Sums, Maxima: part.Maxima}
	}
	if len(violations) > 0 {
		return nil, refuse("", violations...)
	}
	var answer *pb.MergeSumsResponse
	err := c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.MergeSums(ctx, request, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if answer.GetSums() == nil {
		return nil, unreadable(errors.New("it has no sums"), "")
	}
	if method != nil && answer.GetAnswer() == nil {
		return nil, unreadable(errors.New("it has no metrics"), "")
	}
	return answer, nil
}

func stepTotals(message *pb.MergeSumsResponse) *StepTotals {
	answer := message.GetAnswer()
	totals := &StepTotals{
		Sums:            partialSums(message.GetSums()),
		Loss:            answer.GetLoss(),
		HasLoss:         answer.Loss != nil,
		Metrics:         answer.GetMetrics(),
		Rules:           ruleSummaries(answer.GetRules()),
		NonFiniteTokens: answer.GetNonFiniteTokens(),
		Warnings:        answer.GetWarnings(),
		Staleness:       staleness(answer.GetStaleness()),
		CountsRefusal:   message.GetCountsRefusal(),
	}
	if message.GetCounts() != nil {
		counts := globalCounts(message.GetCounts())
		totals.Counts = &counts
	}
	return totals
}

func partialSums(message *pb.PartialSums) *PartialSums {
	if message == nil {
		return nil
	}
	return &PartialSums{Sums: message.GetSums(), Maxima: message.GetMaxima()}
}
