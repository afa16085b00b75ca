package counterweight

import (
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// An Option is what one Correct does differently.
type Option func(*call)

// An Output is something that a Result may have.
type Output int

// The outputs.
const (
	OutputWeights Output = iota + 1
	OutputKeepMask
	OutputTokenReasons
	OutputSequenceReasons
	OutputGradient
	// OutputLoss is the loss without its gradient.
	OutputLoss
)

// Outputs selects the outputs. Without it: the keep mask, the weights if the method has
// them, and loss and gradient if it has a loss: a Config or Preset with a PolicyLoss; a
// Dialect if the batch has CurrentLogProbs and Advantages. WithoutLoss leaves both out. The gradient
// includes the loss.
func Outputs(outputs ...Output) Option {
	return func(c *call) { c.outputs, c.outputsGiven = outputs, true }
}

// Into gives slices to write the outputs into; those that are not nil become the Result's.
// Each must have the length that its output has in Arrays, and share no memory with the
// others or with the batch. Into does not select outputs. After an error their content is
// undefined.
func Into(arrays Arrays) Option {
	return func(c *call) { c.into = arrays }
}

// Via takes another transport than the client's.
func Via(transport Transport) Option {
	return func(c *call) { c.transport = transport }
}

// RequestID names the request: at most 128 bytes of printable ASCII. Drift metrics are
// published once per request_id, so repeat a call with the same one. Without it: a new one,
// which results and errors carry.
func RequestID(id string) Option {
	return func(c *call) { c.head.RequestId = id }
}

// Run is the training run, [A-Za-z0-9_.-]{1,64}: a label of the drift metrics in
// Prometheus.
func Run(run string) Option {
	return func(c *call) { c.labels().Run = run }
}

// Replica is the data-parallel replica or worker, or the engine that sampled the batch,
// [A-Za-z0-9_.-]{1,64}, for the server's log; its page compares their drift.
func Replica(replica string) Option {
	return func(c *call) { c.labels().Replica = replica }
}

// PolicyVersion is the version of the policy being trained, >= 0: a gauge of the run in
// Prometheus. Batches with versions of tokens need it.
func PolicyVersion(version int64) Option {
	return func(c *call) { c.labels().PolicyVersion = &version }
}

// Step is the optimizer step that the batch is a part of, >= 0: gauges then show the step, the sums
// of all its batches, of all ranks and micro-batches. Without it they show each batch.
func Step(step int64) Option {
	return func(c *call) { c.labels().Step = &step }
}

// Audit has the rows that measure the drift between engine and trainer, and the sums of earlier
// batches' summaries, added up number by number.
type Audit = pb.Audit

// WithAudit makes Diagnose measure that drift; Correct refuses it.
func WithAudit(audit *Audit) Option {
	return func(c *call) { c.head.Audit = audit }
}

// Shadow is what a method would do to a batch.
type Shadow = pb.Shadow

// WithShadows makes Diagnose describe what these methods would do to the batch, at most 4; Correct
// refuses it.
func WithShadows(methods ...Method) Option {
	return func(c *call) { c.shadows = methods }
}

// NonFinite decides about a NaN or an infinity where ResponseMask is 1. Without it:
// NonFiniteReject.
func NonFinite(policy NonFinitePolicy) Option {
	return func(c *call) { c.head.NonFinitePolicy = policy }
}

// Seed is that of random choices (SurrogateClipCov). Without it: 0.
func Seed(seed uint64) Option {
	return func(c *call) { c.head.Seed = &seed }
}

// WithoutMetrics leaves Metrics and Rules of the result empty and publishes no drift of
// this batch; arrays, loss and errors are the same and arrive sooner. Use it for batches with known
// drift, such as later epochs over the same rollouts.
func WithoutMetrics() Option {
	return func(c *call) { c.head.OmitMetrics = true }
}

// WithPartialSums gives the result Sums, to which those of the step's other parts are added; see
// Client.MergeSums.
func WithPartialSums() Option {
	return func(c *call) { c.head.PartialSums = true }
}

// WithoutLoss leaves the policy loss out: weights, keep mask and drift metrics are those of the whole
// method, and WithGlobalCounts is not required. For the first pass over a step,
// before its counts are known. It excludes OutputLoss and OutputGradient.
func WithoutLoss() Option {
	return func(c *call) { c.head.OmitLoss = true }
}

// GlobalCounts are sums over all ranks that share one optimizer step: losses divide by
// them instead of the batch's own counts, so that the ranks' losses add up. Nil is absent; a
// count of 0 makes the loss 0. Count makes the pointers.
type GlobalCounts struct {
	// Tokens with ResponseMask 1, >= 0. TokenMean divides by it, and the normalization of
	// LevelToken and LevelPrefix weights.
	Tokens *int64
	// Sequences with at least one such token, >= 0. SeqMean* divide by it, and the
	// normalization of LevelSequence and LevelGeometric weights.
	Sequences *int64
	// KeptTokens are those that the rules kept, >= 0; DenominatorKept requires them, and
	// DenominatorGlobal divides by them instead of Tokens.
	KeptTokens *int64
	// KeptSequences are those with a kept token, >= 0; likewise.
	KeptSequences *int64
	// Ranks are the data-parallel ranks, >= 1: loss and gradient are multiplied by it, for trainers
	// with an all-reduce that averages.
	Ranks *int64
	// WeightSum is the sum over all ranks of the bounded importance weights (LevelSequence,
	// LevelGeometric: one per sequence), >= 0.
	WeightSum *float64
	// WeightMean is the mean over all ranks of the bounded importance weights, > 0, by which
	// normalized weights are divided: StepTotals.Counts has it. Instead of WeightSum.
	WeightMean *float64
	// SelectionScope is required by SurrogateKlCov and SurrogateClipCov.
	SelectionScope SelectionScope
}

// Count is a number of GlobalCounts.
func Count[N int64 | float64](number N) *N { return &number }

// WithGlobalCounts gives the counts over all ranks.
func WithGlobalCounts(counts GlobalCounts) Option {
	return func(c *call) { c.head.GlobalCounts = counts.message() }
}

func (c *GlobalCounts) message() *pb.GlobalCounts {
	return &pb.GlobalCounts{
		NumTokens:        c.Tokens,
		NumSequences:     c.Sequences,
		NumKeptTokens:    c.KeptTokens,
		NumKeptSequences: c.KeptSequences,
		NumRanks:         c.Ranks,
		WeightSum:        c.WeightSum,
		WeightMean:       c.WeightMean,
		SelectionScope:   c.SelectionScope,
	}
}

func globalCounts(message *pb.GlobalCounts) GlobalCounts {
	return GlobalCounts{
		Tokens:         message.NumTokens,
		Sequences:      message.NumSequences,
		KeptTokens:     message.NumKeptTokens,
		KeptSequences:  message.NumKeptSequences,
		Ranks:          message.NumRanks,
		WeightSum:      message.WeightSum,
		WeightMean:     message.WeightMean,
		SelectionScope: message.SelectionScope,
	}
}

// Progress is called with the bytes of the batch that were sent and with all of them: with
// 0 before the first, with all when the answer is there, and again from 0 if the batch is
// sent again. Streams call it after every chunk too. It runs in the goroutine of Correct.
func Progress(report func(sent, all int64)) Option {
	return func(c *call) { c.progress = report }
}
