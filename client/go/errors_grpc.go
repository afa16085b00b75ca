package counterweight

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const pushbackKey = "grpc-retry-pushback-ms"

// fromGRPC is the typed form of what a call of gRPC returned.
func fromGRPC(ctx context.Context, err error, trailer metadata.MD, requestID string) error {
	answer := status.Convert(err)
	call := newCallError(answer.Code(), answer.Message(), requestID)
	call.status = answer
	violations := call.readDetails(answer)
	if pushback := trailer.Get(pushbackKey); len(pushback) > 0 {
		call.pushBack(pushback[0])
	}
	switch call.Code {
	case codes.InvalidArgument:
		return &InvalidRequestError{call, violations}
	case codes.ResourceExhausted:
		return &OverloadedError{call}
	case codes.Unavailable:
		call.cause = ErrUnavailable
	case codes.DeadlineExceeded:
		call.cause = context.DeadlineExceeded
	case codes.Canceled:
		call.cause = ErrUnavailable // a server that shuts down answers so too
		if errors.Is(ctx.Err(), context.Canceled) {
			call.cause = context.Canceled
		}
	}
	call.Retryable = call.cause != nil && !call.forbidden
	return call
}

// readDetails reads the details beside code and message. They are optional: unreadable ones are
// left out.
func (e *CallError) readDetails(answer *status.Status) []Violation {
	var violations []Violation
	for _, detail := range answer.Details() {
		switch detail := detail.(type) {
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				violations = append(violations, Violation{violation.GetField(), violation.GetDescription()})
			}
		case *errdetails.RetryInfo:
			if delay := detail.GetRetryDelay(); delay.IsValid() {
				e.RetryAfter, e.pushedBack, e.Retryable = max(0, delay.AsDuration()), true, true
			}
		}
	}
	return violations
}

// pushBack reads the trailer of gRPC's retry design (proposal A6): milliseconds, and
// anything but a number >= 0 forbids to try again.
func (e *CallError) pushBack(text string) {
	milliseconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		e.RetryAfter, e.pushedBack, e.Retryable, e.forbidden = 0, false, false, true
		return
	}
	e.RetryAfter = max(e.RetryAfter, time.Duration(milliseconds)*time.Millisecond)
	e.pushedBack, e.Retryable = true, true
}
