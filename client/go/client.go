package counterweight

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/sharedmemory"
	"github.com/counterweight/counterweight/client/go/internal/targets"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

type (
	// ServerInfo is the server's identity and limits.
	ServerInfo = pb.GetServerInfoResponse
	// MethodInfo is a row of the methods table.
	MethodInfo = pb.MethodInfo
	// Health is Serving if the server takes requests, else another status.
	Health = healthpb.HealthCheckResponse_ServingStatus
)

// Serving is the Health of a server that takes requests. One that drains is not.
const Serving = healthpb.HealthCheckResponse_SERVING

// clientKey identifies the client, so that the server can be fair to clients.
const clientKey = "counterweight-client"

// A Client is a connection to one server. Any number of goroutines may call at once and
// share the connection.
type Client struct {
	settings settings
	conn     *grpc.ClientConn
	service  pb.CorrectionServiceClient
	id       string
	metadata metadata.MD
	router   router
	names    wire.Names

	connections connections
	warned      sync.Once
	closing     sync.Once
	closed      chan struct{}
}

// New prepares a connection to "host:port" or "unix:/path/to/socket"; schemes for which gRPC has a
// resolver of the caller's work too. Behind "dns:///name:port", such as a headless Service's, and
// "ipv4:host:port,host:port" (or "ipv6:") may be several servers, which take turns by call.
// Nothing is sent before the first call. An error names a target or an option that is wrong. A proxy of
// the environment serves only targets that are neither on this machine nor lists.
//
// Without WithTLS or WithTLSConfig nothing is encrypted: for loopback and Unix sockets.
func New(target string, options ...ClientOption) (*Client, error) {
	if !wire.LittleEndian {
		return nil, errors.New("counterweight: this package needs a little-endian machine")
	}
	client := &Client{
		settings: settings{timeout: DefaultTimeout, chunkBytes: DefaultChunkBytes, keepalive: keepaliveDefaults},
		id:       newID(),
		closed:   make(chan struct{}),
	}
	client.metadata = metadata.Pairs(clientKey, client.id)
	client.settings.retry, _ = RetryPolicy{}.withDefaults()
	for _, option := range options {
		if err := option(&client.settings); err != nil {
			return nil, err
		}
	}
	client.connections.open = map[*connection]struct{}{}
	parsed, wrong := targets.Parse(target)
	if wrong != nil {
		parsed = targets.Target{Text: target} // a resolver of the caller's may know it
	}
	var err error
	if client.conn, err = grpc.NewClient(parsed.Text, client.settings.dialOptions(parsed, &client.connections)...); err != nil {
		return nil, fmt.Errorf("counterweight: %w", err)
	}
	err = malformed(target, wrong, client.conn, client.settings.dial)
	if err == nil {
		err = client.settings.checkToken(target, parsed)
	}
	if err != nil {
		_ = client.conn.Close()
		return nil, err
	}
	client.service = pb.NewCorrectionServiceClient(client.conn)
	client.router.local = sharedmemory.Supported && parsed.Scheme == "unix"
	return client, nil
}

// Close ends the connection. Calls in flight and later ones return an error in which
// errors.Is finds ErrClosed. It may be called again, and at any time.
func (c *Client) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		_ = c.conn.Close() // it is only an error to close it twice
		c.router.close()
	})
	return nil
}

// ListMethods returns every named method, in the table's order. Its errors are those of
// Correct.
func (c *Client) ListMethods(ctx context.Context) ([]*MethodInfo, error) {
	var methods []*MethodInfo
	err := c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) error {
		answer, err := c.service.ListMethods(ctx, &pb.ListMethodsRequest{}, options...)
		methods = answer.GetMethods()
		return err
	})
	return methods, err
}

// ServerInfo returns version, backend, limits and features of the server. Its errors are
// those of Correct.
func (c *Client) ServerInfo(ctx context.Context) (*ServerInfo, error) {
	var info *ServerInfo
	err := c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		info, err = c.service.GetServerInfo(ctx, &pb.GetServerInfoRequest{}, options...)
		return err
	})
	if err == nil {
		c.compareVersions(info.GetVersion())
	}
	return info, err
}

// Health requests once, without retries, whether the server takes requests.
func (c *Client) Health(ctx context.Context) (Health, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	var trailer metadata.MD
	answer, err := healthpb.NewHealthClient(c.conn).
		Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	if err != nil {
		return healthpb.HealthCheckResponse_UNKNOWN, c.failure(ctx, err, trailer, "")
	}
	return answer.GetStatus(), nil
}

// simple runs a call without a batch, and again where that helps.
func (c *Client) simple(
	ctx context.Context, call func(context.Context, ...grpc.CallOption) error,
) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	attempts := c.newAttempts()
	return c.retrying(ctx, &attempts, Unary, "", func() error {
		var trailer metadata.MD
		if err := call(ctx, grpc.Trailer(&trailer)); err != nil {
			return c.failure(ctx, err, trailer, "")
		}
		return nil
	})
}

// withTimeout is the context of a call.
func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := metadata.FromOutgoingContext(ctx); has {
		ctx = metadata.AppendToOutgoingContext(ctx, clientKey, c.id)
	} else { // with fewer allocations
		ctx = metadata.NewOutgoingContext(ctx, c.metadata)
	}
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.settings.timeout)
}

// failure is the typed form of what a call of gRPC returned.
func (c *Client) failure(ctx context.Context, err error, trailer metadata.MD, requestID string) error {
	if c.isClosed() {
		return closedError(requestID)
	}
	return fromGRPC(ctx, err, trailer, requestID)
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}
