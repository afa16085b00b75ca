package counterweight

import (
	"fmt"
)

// A Transport is how the bytes of a batch travel. Results and errors do not depend on it.
type Transport int

// The transports.
const (
	// Auto sends small batches (below 2 MiB) as one message, others by the fastest way that
	// the server has: SharedMemory, Stream, Unary.
	Auto Transport = iota
	// Unary sends one message, of at most Limits.max_message_bytes.
	Unary
	// Stream sends chunks, in any number.
	Stream
	// SharedMemory sends nothing: the bytes lie in memory that the server maps too. It needs
	// Linux, a target "unix:..." and a server that offers it.
	SharedMemory
)

var transportNames = [...]string{"auto", "unary", "stream", "shared_memory"}

// String is "auto", "unary", "stream" or "shared_memory".
func (t Transport) String() string {
	if t.check() != nil {
		return fmt.Sprintf("Transport(%d)", int(t))
	}
	return transportNames[t]
}

// ParseTransport reads what String writes.
func ParseTransport(text string) (Transport, error) {
	for i, name := range transportNames {
		if text == name {
			return Transport(i), nil
		}
	}
	return Auto, fmt.Errorf("counterweight: the transport must be one of %v; got %q", transportNames, text)
}

func (t Transport) check() error {
	if t < Auto || t > SharedMemory {
		return fmt.Errorf("counterweight: there is no transport %d", int(t))
	}
	return nil
}
