package counterweight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// firstPause is taken where the server names none: none listens, or the connection broke.
	firstPause = 100 * time.Millisecond
	// jitter is the largest random addition, as a share of a pause, so that refused clients do not
	// return all at once.
	jitter = 0.25
)

// A RetryPolicy sets how often and how long a refused call is tried again.
//
// The client retries what the server did not admit: RESOURCE_EXHAUSTED with a delay, UNAVAILABLE,
// and once the CANCELLED of a server that ends. A stream receives an admission, and is not tried
// again after it unless Interrupted is set. The pause is the server's delay, or 0.1 s; it doubles
// with every attempt up to MaxPause and has up to a quarter of itself on top, at random. A
// pause that would end after the context's deadline or MaxElapsed is not begun: the error
// is returned at once. Every attempt has the same request_id.
//
// The zero value of a field is its default.
type RetryPolicy struct {
	// Attempts is how many there are in all, the first included. 0: 5. Negative: any number.
	Attempts int
	// MaxElapsed is how long after the first attempt another one may begin. 0: only the
	// context bounds.
	MaxElapsed time.Duration
	// MaxPause is the longest pause, unless the server's delay is longer. 0: 5 s.
	MaxPause time.Duration
	// Interrupted also tries calls again that ended because the server went away after it
	// had admitted them: UNAVAILABLE and CANCELLED in an admitted stream, and CANCELLED more
	// than once. A correction has no effect but its metrics, so this is safe; a batch
	// that crashes the server would crash it again.
	Interrupted bool
}

func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	if p.MaxElapsed < 0 || p.MaxPause < 0 {
		return p, fmt.Errorf("counterweight: durations of RetryPolicy must not be negative; got %v and %v",
			p.MaxElapsed, p.MaxPause)
	}
	if p.Attempts == 0 {
		p.Attempts = 5
	}
	if p.MaxPause == 0 {
		p.MaxPause = 5 * time.Second
	}
	return p, nil
}

// attempts are those of one call.
type attempts struct {
	policy   RetryPolicy
	begin    time.Time
	failed   int
	admitted bool
	// cancelled: the server has ended an attempt with CANCELLED.
	cancelled bool
}

// pause returns how long to wait before the next attempt; false: there is none.
func (a *attempts) pause(ctx context.Context, err error) (time.Duration, bool) {
	a.failed++
	asked, helps := pauseAskedFor(err)
	if status.Code(err) == codes.Canceled {
		helps = helps && (!a.cancelled || a.policy.Interrupted)
		a.cancelled = true
	}
	if !helps || (a.admitted && !a.policy.Interrupted) {
		return 0, false
	}
	if a.policy.Attempts > 0 && a.failed >= a.policy.Attempts {
		return 0, false
	}
	pause := asked
	for i := 1; i < a.failed && pause < a.policy.MaxPause; i++ {
		pause *= 2
	}
	pause = max(asked, min(pause, a.policy.MaxPause))
	pause += time.Duration(float64(pause) * jitter * rand.Float64())
	end := time.Now().Add(pause)
	if a.policy.MaxElapsed > 0 && end.Sub(a.begin) >= a.policy.MaxElapsed {
		return 0, false
	}
	if deadline, ok := ctx.Deadline(); ok && !end.Before(deadline) {
		return 0, false
	}
	return pause, true
}

// pauseAskedFor is false where another attempt would not help, or the server may have
// admitted the call.
func pauseAskedFor(err error) (time.Duration, bool) {
	var call *CallError
	if !errors.As(err, &call) || call.forbidden {
		return 0, false
	}
	switch {
	case call.Code == codes.ResourceExhausted:
		return call.RetryAfter, call.pushedBack
	case errors.Is(call, ErrUnavailable): // UNAVAILABLE, or CANCELLED that the server sent
		if call.pushedBack {
			return call.RetryAfter, true
		}
		return firstPause, true
	}
	return 0, false
}
