package counterweight

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials/insecure"
)

// Writes counts the client's connections in the midst of a write.
func (c *Client) Writes() int { return len(c.connections.writing()) }

// ShakeHands makes a socket a client's connection, without TLS.
func ShakeHands(raw net.Conn) (net.Conn, error) {
	watched := &watchedCredentials{insecure.NewCredentials(), &connections{open: map[*connection]struct{}{}}}
	made, _, err := watched.ClientHandshake(context.Background(), "", raw)
	return made, err
}

// ImpatientKeepalive notices a frozen server in 11 s: gRPC takes no interval below 10 s.
func ImpatientKeepalive(s *settings) error {
	s.keepalive.Time, s.keepalive.Timeout = 10*time.Second, time.Second
	return nil
}
