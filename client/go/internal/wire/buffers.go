package wire

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	smallestClass = 12
	largestClass  = 24
	// slack lets a chunk of a power of two have its framing beside it.
	slack = 4 << 10
)

// buffers are byte slices that are used again, in classes whose sizes double. gRPC gives
// them back when their bytes are on their way: this is its mem.BufferPool. Unlike gRPC's
// own, it does not clear what it hands out.
type buffers struct {
	classes [largestClass + 1]sync.Pool
}

var pool buffers

// Get returns a slice of that length and undefined content.
func (b *buffers) Get(length int) *[]byte {
	class := classOf(length)
	if class > largestClass {
		buffer := make([]byte, length)
		return &buffer
	}
	if buffer, ok := b.classes[class].Get().(*[]byte); ok {
		*buffer = (*buffer)[:length]
		return buffer
	}
	buffer := make([]byte, length, capacityOf(class))
	return &buffer
}

// Put takes a slice back. What is of no class is left to the collector.
func (b *buffers) Put(buffer *[]byte) {
	class := classOf(cap(*buffer))
	if class <= largestClass && cap(*buffer) == capacityOf(class) {
		b.classes[class].Put(buffer)
	}
}

// message hands a slice of the pool over to gRPC.
func (b *buffers) message(buffer *[]byte) mem.BufferSlice {
	return mem.BufferSlice{mem.NewBuffer(buffer, b)}
}

func classOf(length int) int {
	return max(smallestClass, bits.Len(uint(max(length-slack-1, 0))))
}

func capacityOf(class int) int { return 1<<class + slack }
