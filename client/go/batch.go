package counterweight

import (
	"fmt"
	"math/bits"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// A Batch is the rollouts of one correction. Its slices are read in place, and may be reused as
// soon as Correct has returned, with or without an error.
//
// The layout is padded, [B, T] row by row, or packed: the sequences one after the other
// without padding. Each slice but GroupIDs, RowDivisors and VersionSpans has one element for each
// position. Which log-probs are needed follows from the method; at least two. Log-probs are
// natural logarithms (nats).
type Batch struct {
	// Shape is [B, T], the number of sequences and the positions of each; both >= 0.
	Shape [2]int
	// SequenceLengths has the positions of each sequence, >= 0, of a packed batch; not nil,
	// it takes the place of Shape.
	SequenceLengths []int64
	// PaddedLength is the width that a packed batch would have if padded, read only where a
	// peer's formula needs it. 0: that of the longest sequence.
	PaddedLength int64

	// ResponseMask is 1 where the token counts, else 0. Positions with 0 are never read into
	// arithmetic. Required.
	ResponseMask []uint8
	// RolloutLogProbs are those of the policy that sampled, as the inference engine reported
	// them.
	RolloutLogProbs []float32
	// OldLogProbs are the trainer's recomputation at the start of the step.
	OldLogProbs []float32
	// CurrentLogProbs are those of the policy being trained, at this gradient step.
	CurrentLogProbs []float32
	// RefLogProbs are those of a fixed policy, for a KL penalty.
	RefLogProbs []float32
	// Advantages are those of each token, already broadcast; any unit.
	Advantages []float32

	// GroupIDs are the group (prompt) of each sequence, [B], for losses that average within
	// groups; refused by name elsewhere.
	GroupIDs []int64

	// RowDivisors divide each sequence's sum, [B] finite numbers > 0, instead of its number of
	// tokens, in losses aggregated by SeqMeanTokenMean: the tokens of the whole rollout that
	// the sequence is a part of, for example; refused by name elsewhere.
	RowDivisors []float64

	// PolicyVersions are the versions of the policy that sampled each token, from 0 to the
	// option PolicyVersion, or -1 where unknown. Result.Staleness is split by them.
	PolicyVersions []int32
	// VersionSpans give the versions by spans, in place of PolicyVersions.
	VersionSpans []VersionSpan
}

// A VersionSpan is positions [Start, End) of one sequence, which one version of the policy
// sampled. Spans ascend by Sequence and Start and do not overlap.
type VersionSpan struct {
	Sequence, Start, End, PolicyVersion int64
}

type input struct {
	role pb.TensorRole
	name string
	data []float32
}

func (b *Batch) inputs() [5]input {
	return [5]input{
		{pb.TensorRole_TENSOR_ROLE_ROLLOUT_LOG_PROBS, "RolloutLogProbs", b.RolloutLogProbs},
		{pb.TensorRole_TENSOR_ROLE_OLD_LOG_PROBS, "OldLogProbs", b.OldLogProbs},
		{pb.TensorRole_TENSOR_ROLE_CURRENT_LOG_PROBS, "CurrentLogProbs", b.CurrentLogProbs},
		{pb.TensorRole_TENSOR_ROLE_REF_LOG_PROBS, "RefLogProbs", b.RefLogProbs},
		{pb.TensorRole_TENSOR_ROLE_ADVANTAGES, "Advantages", b.Advantages},
	}
}

func (b *Batch) packed() bool { return b.SequenceLengths != nil }

func (b *Batch) sequences() int {
	if b.packed() {
		return len(b.SequenceLengths)
	}
	return b.Shape[0]
}

// paddedLayout is the room for a message and its parts.
type paddedLayout struct {
	layout pb.Layout
	choice pb.Layout_Padded
	padded pb.PaddedLayout
}

func (b *Batch) layout(made *paddedLayout) *pb.Layout {
	if !b.packed() {
		made.padded.NumSequences, made.padded.Length = int64(b.Shape[0]), int64(b.Shape[1])
		made.choice.Padded = &made.padded
		made.layout.Layout = &made.choice
		return &made.layout
	}
	packed := &pb.PackedLayout{SequenceLengths: b.SequenceLengths}
	if b.PaddedLength != 0 {
		packed.PaddedLength = &b.PaddedLength
	}
	return &pb.Layout{Layout: &pb.Layout_Packed{Packed: packed}}
}

// tensors are views of the slices, the response mask first.
func (b *Batch) tensors(room *[wire.MostInputs]wire.Tensor) []wire.Tensor {
	tensors := append(room[:0], wire.Tensor{
		Role:  pb.TensorRole_TENSOR_ROLE_RESPONSE_MASK,
		DType: pb.DType_D_TYPE_U8,
		Data:  b.ResponseMask,
	})
	for _, input := range b.inputs() {
		if input.data != nil {
			tensors = append(tensors, wire.Tensor{
				Role: input.role, DType: pb.DType_D_TYPE_F32, Data: wire.Bytes(input.data),
			})
		}
	}
	if b.PolicyVersions != nil {
		tensors = append(tensors, wire.Tensor{
			Role:  pb.TensorRole_TENSOR_ROLE_POLICY_VERSIONS,
			DType: pb.DType_D_TYPE_I32,
			Data:  wire.Bytes(b.PolicyVersions),
		})
	}
	return tensors
}

func (b *Batch) versionSpans() []*pb.VersionSpan {
	spans := make([]*pb.VersionSpan, len(b.VersionSpans))
	for i, span := range b.VersionSpans {
		spans[i] = &pb.VersionSpan{
			Sequence: span.Sequence, Start: span.Start, End: span.End, PolicyVersion: span.PolicyVersion,
		}
	}
	return spans
}

// violations are what the wire cannot express; the rest is the server's to check.
func (b *Batch) violations() []Violation {
	if b.packed() && b.Shape != [2]int{} {
		return []Violation{{"Batch.Shape", "is for padded batches; SequenceLengths is set too"}}
	}
	if !b.packed() && b.PaddedLength != 0 {
		return []Violation{{"Batch.PaddedLength", "is for packed batches; SequenceLengths is not set"}}
	}
	positions, err := b.positions()
	if err != nil {
		return []Violation{*err}
	}
	var violations []Violation
	check := func(name string, length int) {
		if length != positions {
			violations = append(violations, Violation{
				"Batch." + name, fmt.Sprintf("has %d elements, but %s asks for %d", length, b.shape(), positions),
			})
		}
	}
	check("ResponseMask", len(b.ResponseMask))
	for _, input := range b.inputs() {
		if input.data != nil {
			check(input.name, len(input.data))
		}
	}
	if b.PolicyVersions != nil {
		check("PolicyVersions", len(b.PolicyVersions))
	}
	return violations
}

// shape is what messages call the layout.
func (b *Batch) shape() string {
	if b.packed() {
		return "the sum of SequenceLengths"
	}
	return fmt.Sprintf("Shape [%d, %d]", b.Shape[0], b.Shape[1])
}

// positions returns the number of positions in the layout.
func (b *Batch) positions() (positions int, wrong *Violation) {
	if !b.packed() {
		rows, length := b.Shape[0], b.Shape[1]
		high, low := bits.Mul64(uint64(max(rows, 0)), uint64(max(length, 0)))
		if rows < 0 || length < 0 || high != 0 || int(low) < 0 {
			return 0, &Violation{"Batch.Shape", fmt.Sprintf("must be [B, T], both >= 0; got %v", b.Shape)}
		}
		return int(low), nil
	}
	for i, length := range b.SequenceLengths {
		positions += int(length)
		if length < 0 || positions < 0 {
			return 0, &Violation{
				fmt.Sprintf("Batch.SequenceLengths[%d]", i), fmt.Sprintf("must be >= 0; got %d", length),
			}
		}
	}
	return positions, nil
}
