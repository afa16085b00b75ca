package counterweight

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/counterweight/counterweight/client/go/internal/wire"
)

const (
	// leaseGrace is how long gRPC needs at most to release a batch after its call has failed, unless
	// it is in the midst of a write. It takes microseconds.
	leaseGrace = 100 * time.Millisecond
	// writePatience is how long a call that has failed waits for a write to end: those of
	// slow links end, those to a frozen process do not.
	writePatience = 2 * time.Second
	// localBufferBytes are what a Unix socket takes before it is full. Linux doubles the number, and
	// without it takes 208 KiB, a tenth of a chunk: gRPC's writer would stop that often. TCP finds
	// its own.
	localBufferBytes = 1 << 20
)

// connections are the open ones of a client. They show whether gRPC may still read a batch: only
// while it writes to a connection.
type connections struct {
	mutex sync.Mutex
	open  map[*connection]struct{}
}

// settle waits until nothing reads the batch of a call that has failed.
func (c *connections) settle(lease *wire.Lease) {
	if lease.Wait(leaseGrace) {
		return
	}
	for end := time.Now().Add(writePatience); time.Now().Before(end); {
		if len(c.writing()) == 0 || lease.Wait(leaseGrace/10) {
			return
		}
	}
	// A connection with a write that does not end is of no use to other calls either.
	for _, stuck := range c.writing() {
		_ = stuck.Close()
	}
	lease.Wait(leaseGrace)
}

// writing are the connections in the midst of a write.
func (c *connections) writing() (found []*connection) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for connection := range c.open {
		connection.mutex.Lock()
		if connection.isWriting {
			found = append(found, connection)
		}
		connection.mutex.Unlock()
	}
	return found
}

// A connection knows whether it is being written to.
type connection struct {
	net.Conn
	of *connections

	mutex     sync.Mutex
	isWriting bool
}

// Write implements net.Conn.
func (c *connection) Write(bytes []byte) (int, error) {
	c.mark(true)
	defer c.mark(false)
	return c.Conn.Write(bytes)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mutex.Lock()
	delete(c.of.open, c)
	c.of.mutex.Unlock()
	return c.Conn.Close()
}

func (c *connection) mark(isWriting bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isWriting = isWriting
}

// watchedCredentials are those of a connection, and make it one of connections.
type watchedCredentials struct {
	credentials.TransportCredentials
	connections *connections
}

// ClientHandshake implements credentials.TransportCredentials.
func (w *watchedCredentials) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	shaken, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	if local, ok := raw.(*net.UnixConn); ok {
		_ = local.SetWriteBuffer(localBufferBytes) // the system may allow less
	}
	made := &connection{Conn: shaken, of: w.connections}
	w.connections.mutex.Lock()
	defer w.connections.mutex.Unlock()
	w.connections.open[made] = struct{}{}
	return made, info, nil
}

// Clone implements credentials.TransportCredentials.
func (w *watchedCredentials) Clone() credentials.TransportCredentials {
	return &watchedCredentials{w.TransportCredentials.Clone(), w.connections}
}
