package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	cw "github.com/counterweight/counterweight/client/go"
)

// maxReportedBytes: larger arrays are reported by their checksum alone.
const maxReportedBytes = 4096

// about is a batch in the words of the README.
type about struct {
	Sequences int               `json:"sequences"`
	Length    int               `json:"length"`
	Lengths   []int64           `json:"lengths"`
	ShortBy   map[string]int    `json:"short_by"`
	Inputs    map[string][]byte `json:"inputs"`
	Versions  []int32           `json:"versions"`
	Spans     [][4]int64        `json:"version_spans"`
}

type call struct {
	Do          string   `json:"do"`
	After       float64  `json:"after"`
	Timeout     float64  `json:"timeout"`
	CancelAfter float64  `json:"cancel_after"`
	CloseAfter  float64  `json:"close_after"`
	RequestID   string   `json:"request_id"`
	Version     *int64   `json:"policy_version"`
	Step        *int64   `json:"step"`
	PartialSums bool     `json:"partial_sums"`
	OmitLoss    bool     `json:"omit_loss"`
	Outputs     []string `json:"outputs"`
	Batch       *about   `json:"batch"`
	Parts       []about  `json:"parts"`
	Method      *struct {
		Preset     string             `json:"preset"`
		Parameters map[string]float64 `json:"parameters"`
		Dialect    string             `json:"dialect"`
		Release    string             `json:"release"`
		Block      map[string]any     `json:"block"`
	} `json:"method"`
}

// batch has the numbers of the README.
func (c *call) batch() (*cw.Batch, error) {
	batch, err := c.tensors()
	if err != nil || c.Batch == nil {
		return batch, err
	}
	batch.PolicyVersions = c.Batch.Versions
	for _, span := range c.Batch.Spans {
		batch.VersionSpans = append(batch.VersionSpans, cw.VersionSpan{
			Sequence: span[0], Start: span[1], End: span[2], PolicyVersion: span[3],
		})
	}
	return batch, nil
}

func (c *call) tensors() (*cw.Batch, error) {
	if c.Batch == nil {
		return pattern([2]int{1, 4}, nil, nil), nil
	}
	told := c.Batch
	if told.Inputs == nil {
		return pattern([2]int{told.Sequences, told.Length}, told.Lengths, told.ShortBy), nil
	}
	batch := &cw.Batch{Shape: [2]int{told.Sequences, told.Length}, SequenceLengths: told.Lengths}
	for name, data := range told.Inputs {
		numbers := make([]float32, len(data)/4)
		for i := range numbers {
			if name != "RESPONSE_MASK" {
				numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
			}
		}
		switch name {
		case "RESPONSE_MASK":
			batch.ResponseMask = data
		case "ROLLOUT_LOG_PROBS":
			batch.RolloutLogProbs = numbers
		case "OLD_LOG_PROBS":
			batch.OldLogProbs = numbers
		case "CURRENT_LOG_PROBS":
			batch.CurrentLogProbs = numbers
		case "REF_LOG_PROBS":
			batch.RefLogProbs = numbers
		case "ADVANTAGES":
			batch.Advantages = numbers
		default:
			return nil, fmt.Errorf("there is no input %s", name)
		}
	}
	return batch, nil
}

func pattern(shape [2]int, lengths []int64, missing map[string]int) *cw.Batch {
	batch := &cw.Batch{Shape: shape, SequenceLengths: lengths}
	positions := shape[0] * shape[1]
	for _, length := range lengths {
		positions += int(length)
	}
	batch.ResponseMask = make([]uint8, positions)
	batch.RolloutLogProbs = make([]float32, positions)
	batch.OldLogProbs = make([]float32, positions)
	for i := range batch.ResponseMask {
		if i%4 != 3 {
			batch.ResponseMask[i] = 1
		}
		batch.RolloutLogProbs[i] = -1 - float32(i%7)/8
		batch.OldLogProbs[i] = -1 - float32(i%5)/8
	}
	batch.RolloutLogProbs = batch.RolloutLogProbs[:positions-missing["ROLLOUT_LOG_PROBS"]]
	batch.OldLogProbs = batch.OldLogProbs[:positions-missing["OLD_LOG_PROBS"]]
	return batch
}

func (c *call) method() (cw.Method, error) {
	if c.Method == nil {
		return cw.Preset("token_tis"), nil
	}
	if c.Method.Dialect != "" {
		return cw.Dialect(c.Method.Dialect, c.Method.Block, cw.Release(c.Method.Release)), nil
	}
	return cw.Preset(c.Method.Preset, cw.Parameters(c.Method.Parameters)), nil
}

func (c *call) options() []cw.Option {
	names := c.Outputs
	if names == nil {
		names = []string{"WEIGHTS", "KEEP_MASK"}
	}
	outputs := map[string]cw.Output{
		"WEIGHTS": cw.OutputWeights, "KEEP_MASK": cw.OutputKeepMask, "GRADIENT": cw.OutputGradient,
		"TOKEN_REASONS": cw.OutputTokenReasons, "SEQUENCE_REASONS": cw.OutputSequenceReasons,
	}
	var asked []cw.Output
	for _, name := range names {
		asked = append(asked, outputs[name])
	}
	var options []cw.Option
	if len(asked) > 0 {
		options = append(options, cw.Outputs(asked...))
	}
	if c.RequestID != "" {
		options = append(options, cw.RequestID(c.RequestID))
	}
	if c.Version != nil {
		options = append(options, cw.PolicyVersion(*c.Version))
	}
	if c.Step != nil {
		options = append(options, cw.Step(*c.Step))
	}
	if c.PartialSums || c.Do == "step" {
		options = append(options, cw.WithPartialSums())
	}
	if c.OmitLoss {
		options = append(options, cw.WithoutLoss())
	}
	return options
}

// step corrects the parts of a step, adds up their sums and finishes them.
func (c *call) step(ctx context.Context, client *cw.Client) (report, error) {
	method, err := c.method()
	if err != nil {
		return nil, err
	}
	var parts []*cw.PartialSums
	for i := range c.Parts {
		part := *c
		part.Batch = &c.Parts[i]
		batch, err := part.batch()
		if err != nil {
			return nil, err
		}
		result, err := client.Correct(ctx, batch, method, part.options()...)
		if err != nil {
			return nil, err
		}
		parts = append(parts, result.Sums)
	}
	merged, err := client.MergeSums(ctx, parts)
	if err != nil {
		return nil, err
	}
	totals, err := client.MetricsOf(ctx, merged, method)
	if err != nil {
		return nil, err
	}
	made := numbers(&cw.Result{
		Loss: totals.Loss, HasLoss: totals.HasLoss, Metrics: totals.Metrics, Rules: totals.Rules,
		NonFiniteTokens: totals.NonFiniteTokens, Warnings: totals.Warnings, Staleness: totals.Staleness,
		Sums: totals.Sums,
	})
	made["counts"], made["counts_refusal"] = counts(totals.Counts), totals.CountsRefusal
	return made, nil
}

func counts(counts *cw.GlobalCounts) any {
	if counts == nil {
		return nil
	}
	made := report{}
	for name, count := range map[string]*int64{
		"num_tokens": counts.Tokens, "num_sequences": counts.Sequences, "num_kept_tokens": counts.KeptTokens,
		"num_kept_sequences": counts.KeptSequences, "num_ranks": counts.Ranks,
	} {
		if count != nil {
			made[name] = *count
		}
	}
	for name, number := range map[string]*float64{
		"weight_sum": counts.WeightSum, "weight_mean": counts.WeightMean,
	} {
		if number != nil {
			made[name] = hex(*number)
		}
	}
	return made
}

func sums(sums *cw.PartialSums) any {
	if sums == nil {
		return nil
	}
	texts := func(numbers []float64) []string {
		texts := make([]string, len(numbers))
		for i, number := range numbers {
			texts[i] = hex(number)
		}
		return texts
	}
	return report{"sums": texts(sums.Sums), "maxima": texts(sums.Maxima)}
}

func hex(value float64) string { return fmt.Sprintf("%016x", math.Float64bits(value)) }

func staleness(summary *cw.Staleness) any {
	if summary == nil {
		return nil
	}
	buckets := [][]any{}
	for _, bucket := range summary.Buckets {
		var last any = bucket.Last
		if bucket.Last < 0 {
			last = nil
		}
		buckets = append(buckets, []any{bucket.First, last, bucket.Tokens, hex(bucket.KL), hex(bucket.K3)})
	}
	return report{
		"buckets": buckets, "unknown_tokens": summary.UnknownTokens, "mean": hex(summary.Mean), "max": summary.Max,
	}
}

func success(result *cw.Result) report {
	outputs := report{}
	add := func(name string, array any, given bool) {
		if !given {
			return
		}
		var written bytes.Buffer
		_ = binary.Write(&written, binary.LittleEndian, array)
		data := written.Bytes()
		entry := report{"bytes": len(data), "crc32": crc32.ChecksumIEEE(data)}
		if len(data) <= maxReportedBytes {
			entry["base64"] = data
		}
		outputs[name] = entry
	}
	add("WEIGHTS", result.Weights, result.Weights != nil)
	add("KEEP_MASK", result.KeepMask, result.KeepMask != nil)
	add("TOKEN_REASONS", result.TokenReasons, result.TokenReasons != nil)
	add("SEQUENCE_REASONS", result.SequenceReasons, result.SequenceReasons != nil)
	add("GRADIENT", result.Gradient, result.Gradient != nil)
	made := numbers(result)
	made["request_id"], made["numerics_version"], made["outputs"] = result.RequestID, result.NumericsVersion, outputs
	made["compute_seconds"], made["receive_seconds"] = result.Timing.Compute.Seconds(), result.Timing.Receive.Seconds()
	return made
}

// numbers are what the answers to a batch and to a step have.
func numbers(result *cw.Result) report {
	metrics := map[string]string{}
	for name, value := range result.Metrics {
		metrics[name] = hex(value)
	}
	rules := [][]any{}
	for _, rule := range result.Rules {
		rules = append(rules, []any{rule.Name, rule.DroppedTokens, rule.DroppedSequences})
	}
	var loss any
	if result.HasLoss {
		loss = hex(result.Loss)
	}
	return report{
		"ok": true, "loss": loss, "metrics": metrics, "rules": rules, "staleness": staleness(result.Staleness),
		"non_finite_tokens": result.NonFiniteTokens, "warnings": append([]string{}, result.Warnings...),
		"sums": sums(result.Sums),
	}
}

func failure(err error) report {
	var call *cw.CallError
	if !errors.As(err, &call) {
		return report{"ok": false, "code": "", "kind": "other", "message": err.Error()}
	}
	codes := [...]string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
		"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	violations := [][2]string{}
	var invalid *cw.InvalidRequestError
	var overloaded *cw.OverloadedError
	kind := "other"
	switch {
	case errors.As(err, &invalid):
		kind = "invalid"
		for _, violation := range invalid.Violations {
			violations = append(violations, [2]string{violation.Field, violation.Description})
		}
	case errors.As(err, &overloaded):
		kind = "overloaded"
	case errors.Is(err, cw.ErrUnavailable):
		kind = "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		kind = "deadline"
	case errors.Is(err, context.Canceled), errors.Is(err, cw.ErrClosed):
		kind = "cancelled"
	}
	var retryAfter any
	if call.RetryAfter > 0 {
		retryAfter = call.RetryAfter.Seconds()
	}
	return report{
		"ok": false, "code": codes[call.Code], "kind": kind, "message": call.Message, "text": err.Error(),
		"violations": violations, "request_id": call.RequestID, "retry_after": retryAfter,
	}
}
