package counterweight

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"
)

func (c *Client) newAttempts() attempts {
	return attempts{policy: c.settings.retry, begin: time.Now()}
}

// retrying runs an attempt until it succeeds or another one would not help.
func (c *Client) retrying(
	ctx context.Context, attempts *attempts, transport Transport, requestID string, attempt func() error,
) error {
	for {
		if c.isClosed() {
			return closedError(requestID)
		}
		err := attempt()
		if err == nil {
			return nil
		}
		if c.router.fallsBack(err) && transport == Auto {
			continue
		}
		pause, again := attempts.pause(ctx, err)
		if !again {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return contextError(ctx, requestID)
		case <-c.closed:
			timer.Stop()
			return closedError(requestID)
		}
	}
}

// newID is 128 random bits in hexadecimal.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails on systems that Go runs on
	return hex.EncodeToString(id[:])
}
