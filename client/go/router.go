package counterweight

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
)

// smallBytes: batches whose tensors have fewer bytes go as one message.
const smallBytes = 2 << 20

// capabilities are what a server can do beside Correct.
type capabilities struct {
	stream         bool
	maxChunkBytes  uint64
	socket         string
	maxSharedBytes uint64
}

func readCapabilities(info *ServerInfo) *capabilities {
	found := &capabilities{
		stream:        slices.Contains(info.GetFeatures(), "stream"),
		maxChunkBytes: info.GetLimits().GetMaxChunkBytes(),
	}
	if slices.Contains(info.GetFeatures(), "shared_memory") {
		found.socket = info.GetSharedMemorySocket()
		found.maxSharedBytes = info.GetLimits().GetMaxSharedMemoryBytes()
	}
	return found
}

// A router chooses the way of a batch. What the server offers is asked for once, when it
// first matters.
type router struct {
	// local: a path names the same file for both ends.
	local bool

	mutex sync.Mutex
	known *capabilities
}

func (r *router) capabilities() *capabilities {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.known
}

func (r *router) learn(known *capabilities) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.known = known
}

// asks tells whether the server's offers are needed to choose, and not known.
func (r *router) asks(transport Transport, bytes int64) bool {
	if transport == Unary || (transport == Auto && bytes < smallBytes) {
		return false
	}
	return r.capabilities() == nil
}

// choose says which way a batch of so many bytes goes.
func (r *router) choose(transport Transport, bytes int64) (Transport, error) {
	known := r.capabilities()
	if known == nil {
		known = &capabilities{}
	}
	switch {
	case transport == Unary, transport == Auto && bytes < smallBytes:
		return Unary, nil
	case transport == SharedMemory && !r.local:
		return 0, notShared("it needs Linux and a target unix:...")
	case transport == SharedMemory && known.socket == "":
		return 0, notShared("the server offers none over this connection")
	case transport != Stream && r.local && known.socket != "":
		return SharedMemory, nil
	case transport == Stream, known.stream:
		return Stream, nil
	}
	return Unary, nil
}

// fallsBack draws the conclusions of a failure; true: the call may go another way at once.
func (r *router) fallsBack(err error) bool {
	var call *CallError
	if !errors.As(err, &call) {
		return false
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch call.Code {
	case codes.Unavailable:
		r.known = nil // the next server may be another one
	case codes.Unimplemented:
		// Not the server that said what it offers, but an older one behind the same address.
		if call.viaStream && r.known != nil && r.known.stream {
			known := *r.known
			known.stream = false
			r.known = &known
			return true
		}
	}
	return false
}

func (r *router) close() {}

// isUnixPath tells whether the target is a Unix socket of this machine.
func isUnixPath(target string) bool { return strings.HasPrefix(target, "unix:") }

func notShared(why string) error {
	return newCallError(codes.FailedPrecondition, "the transport shared_memory is not possible: "+why, "")
}
