package counterweight

import "time"

// Writes counts the client's connections in the midst of a write.
func (c *Client) Writes() int { return len(c.connections.writing()) }

// ImpatientKeepalive notices a frozen server in 11 s: gRPC takes no interval below 10 s.
func ImpatientKeepalive(s *settings) error {
	s.keepalive.Time, s.keepalive.Timeout = 10*time.Second, time.Second
	return nil
}
