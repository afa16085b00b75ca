package counterweight

import (
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/counterweight/counterweight/client/go/internal/sharedmemory"
)

// smallBytes: batches with fewer bytes of tensors go as one message.
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

// A router chooses the way of a batch. It requests the server's features once, when they first
// matter.
type router struct {
	// local: a path names the same file for both ends.
	local bool

	mutex sync.Mutex
	known *capabilities

	// pool is memory that is shared with the server, if it ever was.
	pool   *sharedmemory.Pool
	closed bool
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

// needsCapabilities reports whether the choice depends on the server's features, and they are unknown.
func (r *router) needsCapabilities(transport Transport, bytes int64) bool {
	if transport == Unary || (transport == Auto && bytes < smallBytes) {
		return false
	}
	return r.capabilities() == nil
}

// choose returns the way of a batch of so many bytes.
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

// fallsBack draws the conclusions of a failure; true: the call, if its transport is Auto,
// may go another way at once.
func (r *router) fallsBack(err error) bool {
	var call *CallError
	if !errors.As(err, &call) {
		return false
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if call.Code == codes.ResourceExhausted && r.pool != nil {
		r.pool.Trim() // what is kept for later calls, the server counts
	}
	if errors.Is(call, ErrUnavailable) {
		r.known = nil // the next server may be another one
	}
	// Not the server with the known features, but an older one behind the same address.
	if call.Code == codes.Unimplemented && call.viaStream && r.known != nil && r.known.stream {
		known := *r.known
		known.stream = false
		r.known = &known
		return true
	}
	return false
}

// sharedPool is memory that is shared with the server, as far as is known which.
func (r *router) sharedPool() *sharedmemory.Pool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.pool == nil {
		r.pool = sharedmemory.NewPool()
	}
	if r.closed {
		r.pool.Close()
	} else if r.known != nil && r.known.socket != "" {
		r.pool.MoveTo(r.known.socket, r.known.maxSharedBytes)
	}
	return r.pool
}

// withoutSharedMemory returns the way of a batch that cannot go by shared memory.
func (r *router) withoutSharedMemory(transport Transport, why *sharedmemory.UnusableError) (Transport, error) {
	if transport == SharedMemory && why.Late {
		stuck := newCallError(codes.Unavailable, "shared memory: "+why.Reason, "")
		stuck.cause, stuck.Retryable = ErrUnavailable, true
		return 0, stuck
	}
	if transport == SharedMemory {
		return 0, notShared(why.Reason)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.known == nil || !r.known.stream {
		return Unary, nil
	}
	if why.Lasting {
		known := *r.known
		known.socket = ""
		r.known = &known
	}
	return Stream, nil
}

func (r *router) close() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.closed = true
	if r.pool != nil {
		r.pool.Close()
	}
}

func notShared(why string) error {
	return newCallError(codes.FailedPrecondition, "the transport shared_memory is not possible: "+why, "")
}
