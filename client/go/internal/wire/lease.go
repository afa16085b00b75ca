package wire

import (
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// smallest is what gRPC counts references to; it takes smaller slices for its own.
const smallest = 1<<10 + 1

// MostInputs is how many tensors a request can have: one of each role.
const MostInputs = 7

// A Lease is the caller's memory in the hands of gRPC, which reads it where it lies until
// it has put it on its way. The zero value is ready.
type Lease struct {
	mutex sync.Mutex
	lent  int
	// gRPC takes a pointer to each slice; those of a message are here, without an allocation.
	slices [MostInputs][]byte
	used   int
	// idle is there while Wait waits.
	idle chan struct{}
}

// lend returns the message of a head and the caller's bytes behind it.
func (l *Lease) lend(message mem.BufferSlice, data []byte) mem.BufferSlice {
	if len(data) < smallest {
		return append(message, mem.SliceBuffer(append([]byte(nil), data...)))
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lent++
	var slice *[]byte
	if l.used < len(l.slices) {
		slice = &l.slices[l.used]
		l.used++
	} else { // a stream has more chunks
		slice = new([]byte)
	}
	*slice = data[:len(data):len(data)]
	return append(message, mem.NewBuffer(slice, l))
}

// Get implements mem.BufferPool.
func (l *Lease) Get(length int) *[]byte {
	buffer := make([]byte, length)
	return &buffer
}

// Put implements mem.BufferPool: gRPC does not read the memory any more.
func (l *Lease) Put(*[]byte) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.lent--; l.lent == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// Wait waits until gRPC has released everything, or for that long, and reports whether it has.
// After a broken connection gRPC drops unwritten bytes without a release.
func (l *Lease) Wait(limit time.Duration) bool {
	l.mutex.Lock()
	idle := l.idle
	if l.lent > 0 && idle == nil {
		idle = make(chan struct{})
		l.idle = idle
	}
	l.mutex.Unlock()
	if idle == nil {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
