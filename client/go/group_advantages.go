package counterweight

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// GroupBaseline has the settings that make advantages of the rewards of groups of answers; another
// system's settings are GroupBaseline{System: "verl.grpo"}.
type GroupBaseline = pb.GroupBaseline

// Rows are those of an optimizer step, all slices of one length.
type Rows struct {
	// Rewards are the outcomes; NaN: the row has none, and the advantage 0.
	Rewards []float32
	// GroupIDs are the prompts.
	GroupIDs []int64
	// Tokens are the tokens of each response; nil: not known.
	Tokens []int64
	// KeptTokens are those that rejection rules kept; nil: all.
	KeptTokens []int64
}

// GroupAdvantages are the advantages of rows, and what was subtracted from each reward.
type GroupAdvantages struct {
	Advantages, Baselines []float32
	// Metrics are those of GroupAdvantagesResponse, such as "groups_without_signal".
	Metrics  map[string]float64
	Warnings []string
}

// GroupAdvantages makes advantages of rewards, by baselines that know which rows were rejected.
// Errors are those of Correct, with the code codes.Unimplemented from a server without the feature
// "group_advantages".
func (c *Client) GroupAdvantages(ctx context.Context, rows Rows, baseline *GroupBaseline) (*GroupAdvantages, error) {
	request := &pb.GroupAdvantagesRequest{
		RequestId: newID(), Baseline: baseline, Rewards: rows.Rewards, GroupIds: rows.GroupIDs,
		Tokens: rows.Tokens, KeptTokens: rows.KeptTokens,
	}
	var answer *pb.GroupAdvantagesResponse
	err := c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.GroupAdvantages(ctx, request, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &GroupAdvantages{
		answer.GetAdvantages(), answer.GetBaselines(), answer.GetMetrics(), answer.GetWarnings(),
	}, nil
}
