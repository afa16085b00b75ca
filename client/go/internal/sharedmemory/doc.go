// Package sharedmemory lends memory to a server of the same machine: memfds, sealed against
// resizing, with descriptors that go over the server's control socket. proto/README.md has the
// packets.
package sharedmemory

import "fmt"

// Access is what the server does with a region; the numbers are those of the packets.
type Access uint32

// The accesses.
const (
	Read  Access = 1
	Write Access = 2
)

// A Handle is what the server calls a region.
type Handle [16]byte

// An UnusableError means that a batch cannot go by shared memory, but may go in other ways.
type UnusableError struct {
	Reason string
	// Lasting: no server is at the socket, or the client is closed. The next call fails too.
	Lasting bool
	// Late: the server may be frozen. Calls go in other ways until it has answered.
	Late bool
}

// Error is the reason.
func (e *UnusableError) Error() string { return e.Reason }

func unusable(lasting bool, format string, values ...any) error {
	return &UnusableError{Reason: fmt.Sprintf(format, values...), Lasting: lasting}
}

func late(err error) error { return &UnusableError{Reason: err.Error(), Late: true} }
