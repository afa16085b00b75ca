package counterweight

import (
	"context"
	"math"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// A Severity is how bad a Finding is.
type Severity int

// Severities, ascending. A later server may know others.
const (
	// SeverityNote may be meant so.
	SeverityNote Severity = 1 + iota
	// SeverityWarning is rarely meant so.
	SeverityWarning
	// SeverityError makes what is learned from the batch noise or worse.
	SeverityError
)

// A Finding is one fault of a batch.
type Finding struct {
	// Name is which one, such as "shifted"; kernels/doctor/FINDINGS.md has the table.
	Name     string
	Severity Severity
	// Confidence is in [0, 1]; 1 where counts prove it.
	Confidence float64
	// Stream is the array with the fault, such as "old_log_probs"; empty: no single one.
	Stream string
	// Observed is the distance of the two log-probs of a token, capped at 4 nats, mean, as given;
	// NaN where none is measured.
	Observed float64
	// Repaired is the same with the fault undone; NaN where there is nothing to undo.
	Repaired float64
	// Evidence has other numbers by name.
	Evidence map[string]float64
	// Sequence and Position are the first example; -1: none.
	Sequence, Position int64
	// Sentence is the fault and the way out, for a person.
	Sentence string
}

// A Diagnosis is a batch's examination.
type Diagnosis struct {
	// Findings are in the order of examination, exact facts first. None does not prove that nothing
	// is wrong.
	Findings []Finding
	// Tokens are those with ResponseMask 1 and finite log-probs.
	Tokens int64
	// ExaminedTokens are those of them that were examined one by one: all, or those of whole
	// sequences of at most 65536 positions. Integers are counted over all.
	ExaminedTokens int64
	// ExaminedSequences are the sequences with such tokens.
	ExaminedSequences int64
	// Attribution is why the examined tokens drift; nil without any, and from older servers.
	Attribution *pb.Attribution
	// Audit is the drift of the rows of WithAudit; nil without it, and, with a
	// warning, from older servers.
	Audit *pb.AuditSummary
	// Shadows are what the methods of WithShadows would do, in their order; empty without it, and,
	// with a warning, from older servers.
	Shadows []*Shadow
	// Warnings are sentences about arrays that are not examined.
	Warnings []string
	// RequestID identifies the call.
	RequestID string
}

// Diagnose examines a batch for faults of its data, such as log-probs that lie one token late, and
// names each. Of the options it reads Run, Replica, PolicyVersion, RequestID, WithAudit and WithShadows. The
// batch goes in one message. Errors are those of Correct, with the code codes.Unimplemented from a server without
// the feature "diagnose".
func (c *Client) Diagnose(ctx context.Context, batch *Batch, options ...Option) (*Diagnosis, error) {
	if batch == nil {
		return nil, refuse("", Violation{"Diagnose", "needs a batch"})
	}
	call, err := c.newCall(batch, methodMessage{}, options)
	if err != nil {
		return nil, err
	}
	request := &pb.DiagnoseRequest{
		RequestId:    call.head.GetRequestId(),
		Labels:       call.head.GetLabels(),
		Layout:       call.head.GetLayout(),
		GroupIds:     call.head.GetGroupIds(),
		VersionSpans: call.head.GetVersionSpans(),
		Audit:        call.head.GetAudit(),
		Shadows:      call.head.GetShadows(),
	}
	for i := range call.tensors {
		tensor := call.tensors[i].Head()
		tensor.Data = call.tensors[i].Data
		request.Tensors = append(request.Tensors, tensor)
	}
	var answer *pb.DiagnoseResponse
	err = c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.Diagnose(ctx, request, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	made := diagnosis(answer)
	if request.Audit != nil && made.Audit == nil {
		made.Warnings = append(made.Warnings, "audit was sent, which this server ignores")
	}
	if len(request.Shadows) > 0 && len(made.Shadows) == 0 {
		made.Warnings = append(made.Warnings, "shadows were sent, which this server ignores")
	}
	return made, nil
}

func diagnosis(answer *pb.DiagnoseResponse) *Diagnosis {
	made := &Diagnosis{
		Tokens:            answer.GetTokens(),
		ExaminedTokens:    answer.GetExaminedTokens(),
		ExaminedSequences: answer.GetExaminedSequences(),
		Attribution:       answer.GetAttribution(),
		Audit:             answer.GetAudit(),
		Shadows:           answer.GetShadows(),
		Warnings:          answer.GetWarnings(),
		RequestID:         answer.GetRequestId(),
	}
	for _, each := range answer.GetFindings() {
		made.Findings = append(made.Findings, finding(each))
	}
	return made
}

func finding(message *pb.Finding) Finding {
	made := Finding{
		Name:       message.GetName(),
		Severity:   Severity(message.GetSeverity()),
		Confidence: message.GetConfidence(),
		Observed:   math.NaN(),
		Repaired:   math.NaN(),
		Evidence:   message.GetEvidence(),
		Sequence:   -1,
		Position:   -1,
		Sentence:   message.GetSentence(),
	}
	if message.GetStream() != pb.TensorRole_TENSOR_ROLE_UNSPECIFIED {
		made.Stream = strings.ToLower(strings.TrimPrefix(message.GetStream().String(), "TENSOR_ROLE_"))
	}
	if message.Observed != nil {
		made.Observed = message.GetObserved()
	}
	if message.Repaired != nil {
		made.Repaired = message.GetRepaired()
	}
	if message.Sequence != nil {
		made.Sequence = message.GetSequence()
	}
	if message.Position != nil {
		made.Position = message.GetPosition()
	}
	return made
}
