package counterweight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrUnavailable is what errors.Is finds where no server answers, the connection broke
	// or the server is draining. Trying again, perhaps elsewhere, is safe.
	ErrUnavailable = errors.New("no server is available")
	// ErrClosed is what errors.Is finds in the errors of calls that Client.Close ended, and of later
	// ones.
	ErrClosed = errors.New("the client is closed")
)

// A CallError is the error of a call; the other error types of this package contain one.
// errors.Is finds context.DeadlineExceeded in it when the time was over, here or at the
// server, and context.Canceled when the caller's context was cancelled.
// status.FromError and status.Code of gRPC read it.
type CallError struct {
	// Code is gRPC's; proto/README.md lists the causes of each.
	Code codes.Code
	// Message is a sentence for people.
	Message string
	// RequestID is that of the call, also when this package made it; the server's log has
	// it. Pass it again when repeating the call, so that drift metrics count the batch
	// once. Empty for calls without one.
	RequestID string
	// RetryAfter is the server's delay before the next attempt; 0 if it named none.
	RetryAfter time.Duration
	// Retryable reports whether the same call may succeed later.
	Retryable bool

	status *status.Status
	cause  error
	// pushedBack: the server named a time, which may be 0. forbidden: it forbids another attempt.
	pushedBack, forbidden bool
	// viaStream: it is the error of a CorrectStream.
	viaStream bool
}

// Error has code, message and request_id.
func (e *CallError) Error() string {
	text := fmt.Sprintf("counterweight: %s: %s", e.Code, e.Message)
	if e.RequestID != "" {
		text += " (request_id " + e.RequestID + ")"
	}
	return text
}

// GRPCStatus is the status that the call ended with.
func (e *CallError) GRPCStatus() *status.Status { return e.status }

// Unwrap returns ErrUnavailable, ErrClosed, an error of package context, or nil.
func (e *CallError) Unwrap() error { return e.cause }

// A Violation is one field that is wrong.
type Violation struct {
	// Field is a path in the request with the names of the .proto files, such as
	// "tensors[OLD_LOG_PROBS]" or "method.preset.parameters[upper]"; proto/README.md has
	// the grammar. What this package refuses itself is named by its own words, such as
	// "Batch.OldLogProbs" or "Into.Weights".
	Field string
	// Description names the mistake and the way out.
	Description string
}

// An InvalidRequestError means that the request is wrong and will be wrong again
// (INVALID_ARGUMENT).
type InvalidRequestError struct {
	*CallError
	// Violations are all fields that are wrong; the server lists at most 16.
	Violations []Violation
}

// Error has every violation that the server's message leaves out.
func (e *InvalidRequestError) Error() string {
	text := e.CallError.Error()
	for _, violation := range e.Violations {
		if !strings.Contains(e.Message, violation.Description) {
			text += fmt.Sprintf("\n  %s: %s", violation.Field, violation.Description)
		}
	}
	return text
}

// Unwrap returns the CallError.
func (e *InvalidRequestError) Unwrap() error { return e.CallError }

// An OverloadedError means that the server has no room, or that the request is beyond one
// of its limits (RESOURCE_EXHAUSTED). In the latter case Retryable is false: waiting does
// not help.
type OverloadedError struct {
	*CallError
}

// Unwrap returns the CallError.
func (e *OverloadedError) Unwrap() error { return e.CallError }

// refuse is the error of a request that this package does not send.
func refuse(requestID string, violations ...Violation) error {
	fields := make([]string, len(violations))
	for i, violation := range violations {
		fields[i] = violation.Field
	}
	message := "the request contradicts itself: " + strings.Join(fields, ", ")
	return &InvalidRequestError{
		CallError:  newCallError(codes.InvalidArgument, message, requestID),
		Violations: violations,
	}
}

func newCallError(code codes.Code, message, requestID string) *CallError {
	return &CallError{Code: code, Message: message, RequestID: requestID, status: status.New(code, message)}
}

// unreadable is the error of an answer that breaks the contract.
func unreadable(err error, requestID string) error {
	return newCallError(codes.Internal, "cannot read the server's answer: "+err.Error(), requestID)
}

func closedError(requestID string) error {
	closed := newCallError(codes.Canceled, ErrClosed.Error(), requestID)
	closed.cause = ErrClosed
	return closed
}

// contextError is the error of a call with a context that is done.
func contextError(ctx context.Context, requestID string) error {
	code := codes.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	done := newCallError(code, ctx.Err().Error(), requestID)
	done.cause = ctx.Err()
	return done
}
