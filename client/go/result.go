package counterweight

import (
	"fmt"
	"time"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// Arrays are the outputs that have an element for each position, in the layout of the Batch, or for
// each sequence. One that was not requested, or that the method does not have, is nil.
type Arrays struct {
	// Weights are the importance weights, [positions]; exactly 0 where ResponseMask is 0.
	Weights []float32
	// KeepMask is 1 where the token stays in the loss, else 0; [positions].
	KeepMask []uint8
	// TokenReasons have the causes, [positions]: bit i is set where rule i of Result.Rules dropped
	// the token or zeroed its weight, bit 15 where it was dropped because a number was not
	// finite.
	TokenReasons []uint16
	// SequenceReasons are the OR of the sequence's token reasons, [sequences].
	SequenceReasons []uint16
	// Gradient is d loss / d CurrentLogProbs, [positions], in the unit of advantages;
	// exactly 0 where ResponseMask is 0.
	Gradient []float32
}

// A Result is the answer to one batch.
type Result struct {
	// Arrays are the slices of Into, or new ones.
	Arrays
	// Loss is the policy loss, in the unit of advantages, if HasLoss. NaN where a dialect's system has
	// NaN.
	Loss    float64
	HasLoss bool
	// Metrics are the drift of the batch by name: those of kernels/README.md, or a dialect's
	// own. May hold NaN where a mean has no term. Nil with WithoutMetrics.
	Metrics map[string]float64
	// Rules are what each rejection rule did, in the order of the configuration.
	Rules []RuleSummary
	// NonFiniteTokens counts positions with ResponseMask 1 that held a NaN or an infinity and were
	// dropped or neutralized; with dialect "trl" also those with a rollout log-prob of NaN, which TRL
	// since 1.11 reads as unknown.
	NonFiniteTokens int64
	// Warnings are sentences that the caller should know and that are not errors.
	Warnings []string
	// RequestID is the request's.
	RequestID string
	// NumericsVersion changes when any bit of any answer changes.
	NumericsVersion uint32
	// Backend is "cpu" or "cuda".
	Backend string
	// Timing is where the server's time went.
	Timing Timing
	// Staleness is the drift by staleness. Nil unless the batch has versions of tokens, and
	// with WithoutMetrics.
	Staleness *Staleness
	// Sums are those of the batch, a part of a step. Nil without WithPartialSums.
	Sums *PartialSums
	// ResolvedBounds are the numbers of bounds that were left to the run's calm steps.
	ResolvedBounds []ResolvedBound
}

// A ResolvedBound is a bound that the run's calm steps decide: CalmUpper.
type ResolvedBound struct {
	// Field is the request's: "method.preset.calm_quantiles[upper]".
	Field string
	// Value is the bound of this answer, a ratio.
	Value float64
	// IsCalm: it is the calm steps'. Else the method's own, as the step is one of those that
	// make the calm level.
	IsCalm bool
	// CalmSteps are those that Value is of, or that the server has so far, and CalmWeights
	// their weights that were counted: of 65536 positions of a batch.
	CalmSteps, CalmWeights int64
}

func resolvedBounds(messages []*pb.ResolvedBound) []ResolvedBound {
	var bounds []ResolvedBound
	for _, m := range messages {
		bounds = append(bounds, ResolvedBound{
			m.GetField(), m.GetValue(), m.GetIsCalm(), m.GetCalmSteps(), m.GetCalmWeights(),
		})
	}
	return bounds
}

// Staleness is the drift of tokens by the age of the policy that sampled them: the option
// PolicyVersion minus the token's version.
type Staleness struct {
	// Buckets are the tokens with ResponseMask 1 by staleness 0, 1, 2, 3 to 4, 5 to 8, and 9
	// or more.
	Buckets []StalenessBucket
	// UnknownTokens are those of an unknown version, in no bucket.
	UnknownTokens int64
	// Mean is over the tokens of the buckets; NaN if there are none.
	Mean float64
	// Max is the largest; 0 if no version is known.
	Max int64
}

// A StalenessBucket is the tokens of one range of staleness.
type StalenessBucket struct {
	// First and Last are the range, inclusive; Last is -1 where it has no end.
	First, Last int64
	// Tokens is how many there are.
	Tokens int64
	// KL is the mean of -l over them, K3 that of exp(l) - 1 - l, in nats, where l is the log
	// ratio of the method's drift metrics; NaN without tokens.
	KL, K3 float64
}

// Label is the range as Prometheus shows it: "2", "3-4", "9+".
func (b StalenessBucket) Label() string {
	switch b.Last {
	case b.First:
		return fmt.Sprint(b.First)
	case -1:
		return fmt.Sprintf("%d+", b.First)
	}
	return fmt.Sprintf("%d-%d", b.First, b.Last)
}

func staleness(message *pb.StalenessSummary) *Staleness {
	if message == nil {
		return nil
	}
	summary := &Staleness{
		UnknownTokens: message.GetUnknownTokens(), Mean: message.GetMean(), Max: message.GetMax(),
	}
	for _, bucket := range message.GetBuckets() {
		last := int64(-1)
		if bucket.Last != nil {
			last = *bucket.Last
		}
		summary.Buckets = append(summary.Buckets, StalenessBucket{
			First: bucket.GetFirst(), Last: last, Tokens: bucket.GetTokens(), KL: bucket.GetKl(), K3: bucket.GetK3(),
		})
	}
	return summary
}

// A RuleSummary is what one rejection rule did.
type RuleSummary struct {
	// Name is the rule's, such as "mean_k3".
	Name string
	// DroppedTokens are those that it dropped or gave the weight 0.
	DroppedTokens int64
	// DroppedSequences are those in which it did so at least once.
	DroppedSequences int64
}

// Timing is the time spent in each stage on the server.
type Timing struct {
	// Decode: reading and checking the request.
	Decode time.Duration
	// Queue: waiting for room and for a worker.
	Queue time.Duration
	// Compute: computing, transfers to a device included.
	Compute time.Duration
	// Encode: writing the response.
	Encode time.Duration
	// Receive: of streams, from the admission to the last byte, with what was computed
	// meanwhile.
	Receive time.Duration
}

func timing(message *pb.Timing) Timing {
	return Timing{
		Decode:  seconds(message.GetDecodeSeconds()),
		Queue:   seconds(message.GetQueueSeconds()),
		Compute: seconds(message.GetComputeSeconds()),
		Encode:  seconds(message.GetEncodeSeconds()),
		Receive: seconds(message.GetReceiveSeconds()),
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// fill takes everything but the arrays.
func (r *Result) fill(response *wire.Response) {
	head := &response.Head
	if head.Loss != nil {
		r.Loss, r.HasLoss = *head.Loss, true
	}
	r.Metrics = response.Metrics
	r.Rules = ruleSummaries(head.GetRules())
	r.NonFiniteTokens = head.GetNonFiniteTokens()
	r.Warnings = head.GetWarnings()
	r.RequestID = head.GetRequestId()
	r.NumericsVersion = head.GetNumericsVersion()
	r.Backend = head.GetBackend()
	r.Timing = timing(head.GetTiming())
	r.Staleness = staleness(head.GetStaleness())
	r.Sums = partialSums(head.GetSums())
	r.ResolvedBounds = resolvedBounds(head.GetResolvedBounds())
}

func ruleSummaries(rules []*pb.RuleSummary) []RuleSummary {
	if len(rules) == 0 {
		return nil
	}
	summaries := make([]RuleSummary, len(rules))
	for i, rule := range rules {
		summaries[i] = RuleSummary{rule.GetName(), rule.GetDroppedTokens(), rule.GetDroppedSequences()}
	}
	return summaries
}
