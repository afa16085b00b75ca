package counterweight

import (
	"sync"

	"github.com/counterweight/counterweight/client/go/internal/sharedmemory"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// A Use is what the server does with memory.
type Use int

// The uses.
const (
	// ForInput is memory for slices of a Batch.
	ForInput Use = iota
	// ForOutput is memory for slices of Into.
	ForOutput
)

// Memory is a slice that client and server both map, so that its bytes need not move.
//
// The garbage collector does not know it: the slice, and every part of it, is valid until
// Close, and must not be touched after. A Memory that is dropped without Close keeps its
// memory as long as the process lives.
type Memory[E float32 | uint8 | uint16] struct {
	slice  []E
	pool   *sharedmemory.Pool
	region *sharedmemory.Region
	once   sync.Once
}

// Allocate returns zeroed memory for length elements. Batches with slices in such memory, and
// answers that Into puts there, are neither sent nor copied by SharedMemory;
// with other transports it is memory like any other. Where the system or the target cannot
// share, or there is nothing left to share, it is an ordinary slice.
//
// After a call with it ended without an answer (cancelled, deadline, ErrUnavailable), memory
// for outputs may still change for a moment: Close it and take other.
func Allocate[E float32 | uint8 | uint16](client *Client, length int, use Use) *Memory[E] {
	memory := &Memory[E]{}
	bytes := length * wire.SizeOf[E]()
	if client.router.local && bytes > 0 {
		access := sharedmemory.Read
		if use == ForOutput {
			access = sharedmemory.Write
		}
		pool := client.router.sharedPool()
		if region, err := pool.Allocate(access, bytes); err == nil {
			memory.pool, memory.region = pool, region
			memory.slice = wire.Of[E](region.Bytes()[:bytes:bytes])
			return memory
		}
	}
	memory.slice = make([]E, length)
	return memory
}

// Slice is the memory.
func (m *Memory[E]) Slice() []E { return m.slice }

// Close gives the memory back, as soon as no call uses it. It may be called again, and
// after the client's Close.
func (m *Memory[E]) Close() {
	m.once.Do(func() {
		m.slice = nil
		if m.region != nil {
			m.pool.Retire(m.region)
		}
	})
}
