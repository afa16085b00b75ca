package counterweight

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/counterweight/counterweight/client/go/internal/targets"
)

const (
	// DefaultTimeout limits a call with a context that has no deadline.
	DefaultTimeout = 60 * time.Second
	// DefaultChunkBytes is the fastest size of a stream's chunks.
	DefaultChunkBytes = 2 << 20
	// MaxChunkBytes is the largest that WithChunkBytes takes.
	MaxChunkBytes = 16 << 20
)

// keepaliveDefaults notice a frozen server or a lost machine while a call waits; client/README.md
// has the numbers and what servers accept.
var keepaliveDefaults = keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 20 * time.Second}

const (
	// windowBytes are what gRPC takes in before it is read: several chunks.
	windowBytes = 16 << 20
	// ioBufferBytes are what one system call moves at most.
	ioBufferBytes = 256 << 10
)

// A ClientOption is what New takes beside the target.
type ClientOption func(*settings) error

type settings struct {
	timeout     time.Duration
	retry       RetryPolicy
	transport   Transport
	chunkBytes  int
	credentials credentials.TransportCredentials
	tokens      *tokens
	keepalive   keepalive.ClientParameters
	dial        []grpc.DialOption
}

// WithTimeout bounds calls with a context that has no deadline, connecting and retries included;
// > 0. Without it: DefaultTimeout.
func WithTimeout(timeout time.Duration) ClientOption {
	return func(s *settings) error {
		if timeout <= 0 {
			return fmt.Errorf("counterweight: the timeout of WithTimeout must be above 0; got %v", timeout)
		}
		s.timeout = timeout
		return nil
	}
}

// WithRetry sets how often a call that the server did not admit is tried again.
func WithRetry(policy RetryPolicy) ClientOption {
	return func(s *settings) (err error) {
		s.retry, err = policy.withDefaults()
		return err
	}
}

// WithoutRetry returns the error of the first attempt.
func WithoutRetry() ClientOption { return WithRetry(RetryPolicy{Attempts: 1}) }

// WithTransport sets how batches travel. Without it: Auto.
func WithTransport(transport Transport) ClientOption {
	return func(s *settings) error {
		s.transport = transport
		return transport.check()
	}
}

// WithChunkBytes is the size of a stream's chunks, 1 to MaxChunkBytes; they are smaller if
// the server wants them so. Without it: DefaultChunkBytes.
func WithChunkBytes(bytes int) ClientOption {
	return func(s *settings) error {
		s.chunkBytes = bytes
		if bytes < 1 || bytes > MaxChunkBytes {
			return fmt.Errorf("counterweight: the chunk size must be from 1 to %d bytes; got %d", MaxChunkBytes, bytes)
		}
		return nil
	}
}

// WithTLS speaks TLS with certificates out of files, which are read again when they change:
// connections that are made later have the new ones. An error names the file that is wrong.
func WithTLS(files TLSFiles) ClientOption {
	return func(s *settings) (err error) {
		s.credentials, err = newFileCredentials(files)
		return err
	}
}

// WithTLSConfig speaks TLS with a configuration of crypto/tls.
func WithTLSConfig(config *tls.Config) ClientOption {
	return func(s *settings) error {
		if config == nil {
			return errors.New("counterweight: WithTLSConfig needs a configuration")
		}
		s.credentials = credentials.NewTLS(config)
		return nil
	}
}

// WithDialOptions are gRPC's own options. They follow those of this package, so that they win.
func WithDialOptions(options ...grpc.DialOption) ClientOption {
	return func(s *settings) error {
		s.dial = append(s.dial, options...)
		return nil
	}
}

// dialOptions are for a connection to the target.
func (s *settings) dialOptions(target targets.Target, connections *connections) []grpc.DialOption {
	transport := s.credentials
	if transport == nil {
		transport = insecure.NewCredentials()
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(&watchedCredentials{transport, connections}),
		grpc.WithUserAgent("counterweight-go/" + Version),
		// The server's limits are the ones that hold.
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		// gRPC's own pauses grow to two minutes: a server would be back for long before a
		// client noticed it.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		// They would keep a copy of what was sent, and do not know the admission of streams.
		grpc.WithDisableRetry(),
		grpc.WithKeepaliveParams(s.keepalive),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(ioBufferBytes),
		grpc.WithWriteBufferSize(ioBufferBytes),
	}
	if s.tokens != nil {
		options = append(options, grpc.WithPerRPCCredentials(s.tokens))
	}
	// Without TLS a token goes to this machine only, so that no proxy sees it.
	if target.MayStayHere() || target.IsList() {
		options = append(options, grpc.WithNoProxy())
	}
	return append(append(options, takeTurns(target)...), s.dial...)
}

// checkToken refuses a token that others could read on its way.
func (s *settings) checkToken(name string, target targets.Target) error {
	if s.tokens == nil || s.credentials != nil || target.StaysHere() {
		return nil
	}
	return fmt.Errorf("counterweight: a token is only sent over TLS or on this machine, not to %q", name)
}
