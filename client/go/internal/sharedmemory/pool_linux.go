package sharedmemory

import (
	"context"
	"errors"
	"math/bits"
	"sync"

	"google.golang.org/grpc/codes"
)

const (
	// mostFreeBytes are kept for later calls: the first touch of memory takes several times
	// as long as a copy.
	mostFreeBytes = 512 << 20
	grain         = 64 << 10
)

// A Pool has the regions of one client: those that calls share, and those of the caller.
type Pool struct {
	// mutex guards all members; it is never held while the server is waited for.
	mutex    sync.Mutex
	path     string
	maxBytes uint64
	control  *control
	handles  map[*Region]Handle
	// owned are the caller's.
	owned map[*Region]struct{}
	// free are kept for later calls, the one that was used last at the end.
	free   []*Region
	closed bool
}

// NewPool makes an empty pool.
func NewPool() *Pool {
	return &Pool{handles: map[*Region]Handle{}, owned: map[*Region]struct{}{}}
}

// MoveTo goes on with the server at the socket, if it is another one. Regions have at most
// maxBytes; 0: any.
func (p *Pool) MoveTo(path string, maxBytes uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if path != p.path {
		p.disconnect()
	}
	p.path, p.maxBytes = path, maxBytes
}

// Take returns a region of at least that size for one call, which gives it back or discards
// it.
func (p *Pool) Take(access Access, bytes int) (*Region, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	best := -1
	for i, region := range p.free {
		size := len(region.memory)
		if region.Access == access && bytes <= size && size <= 2*bytes+grain &&
			(best < 0 || size < len(p.free[best].memory)) {
			best = i
		}
	}
	if best >= 0 {
		region := p.free[best]
		p.free = append(p.free[:best], p.free[best+1:]...)
		return region, nil
	}
	return p.make(access, rounded(bytes))
}

// GiveBack keeps a region for later calls, or not.
func (p *Pool) GiveBack(region *Region) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.free = append(p.free, region)
	total := 0
	for _, kept := range p.free {
		total += len(kept.memory)
	}
	for len(p.free) > 0 && (p.closed || total > mostFreeBytes) {
		total -= len(p.free[0].memory)
		p.drop(p.free[0])
		p.free = p.free[1:]
	}
}

// Discard ends a region that a call took: the server may use it still.
func (p *Pool) Discard(region *Region) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.drop(region)
}

// Allocate returns a region of the caller's, which ends with Retire.
func (p *Pool) Allocate(access Access, bytes int) (*Region, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	region, err := p.make(access, bytes)
	if err == nil {
		p.owned[region] = struct{}{}
	}
	return region, err
}

// Retire ends a region of the caller's, as soon as no call uses it.
func (p *Pool) Retire(region *Region) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !region.retired {
		region.retired = true
		p.collect(region)
	}
}

// Find returns the caller's region with that access that has these bytes, at least one, and
// their offset in it; the region stays until Leave. Nil: there is none.
func (p *Pool) Find(bytes []byte, access Access) (*Region, int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for region := range p.owned {
		if region.Access != access || region.retired {
			continue
		}
		if offset, ok := region.find(bytes); ok {
			region.uses++
			return region, offset
		}
	}
	return nil, 0
}

// Leave ends a use by Find.
func (p *Pool) Leave(region *Region) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	region.uses--
	p.collect(region)
}

// Handle is what the server calls the region, which it gets to know if it does not. It waits until the
// context ends at most, and then returns its error.
func (p *Pool) Handle(ctx context.Context, region *Region) (Handle, error) {
	for again := true; ; again = false {
		control, handle, err := p.lookUp(region)
		if control == nil {
			return handle, err
		}
		if handle, err = control.register(ctx, region); err == nil {
			if handle, err = p.keep(control, region, handle); err == nil {
				return handle, nil
			}
		}
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			return Handle{}, ctx.Err()
		case errors.Is(err, errLate):
			return Handle{}, late(err)
		case errors.As(err, &refused):
			// There may be room without what is kept for later calls only.
			if !again || refused.code != codes.ResourceExhausted || !p.Trim() {
				return Handle{}, unusable(false, "the server refuses memory: %v", refused)
			}
		case !again:
			return Handle{}, unusable(false, "the shared-memory socket: %v", err)
		}
	}
}

// lookUp returns the handle that the server has given the region, or else the connection that can
// request one.
func (p *Pool) lookUp(region *Region) (*control, Handle, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.control != nil && !p.control.isOpen() {
		p.disconnect()
	}
	if handle, known := p.handles[region]; known {
		return nil, handle, nil
	}
	if p.closed {
		return nil, Handle{}, unusable(true, "the client is closed")
	}
	if p.control == nil {
		control, err := connect(p.path)
		if err != nil {
			return nil, Handle{}, unusable(true, "cannot connect to the shared-memory socket: %v", err)
		}
		p.control = control
	}
	if p.control.isLate() {
		return nil, Handle{}, late(errLate)
	}
	return p.control, Handle{}, nil
}

// keep remembers a handle, unless its connection is not the pool's any more. Another call may have
// registered the same region meanwhile.
func (p *Pool) keep(control *control, region *Region, handle Handle) (Handle, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if control != p.control {
		return Handle{}, errEnded
	}
	if first, known := p.handles[region]; known {
		if control.release(handle) != nil {
			p.disconnect()
		}
		return first, nil
	}
	p.handles[region] = handle
	return handle, nil
}

// ForgetHandles begins anew with the server: all regions are registered again.
func (p *Pool) ForgetHandles() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.disconnect()
}

// Trim gives back what no call uses: what is kept for later calls, the server counts. False: there
// was nothing.
func (p *Pool) Trim() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	had := len(p.free) > 0
	p.dropFree()
	return had
}

// Close gives everything back but the mappings of the caller's regions, which end with
// Retire.
func (p *Pool) Close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.closed = true
	p.dropFree()
	p.disconnect()
	for region := range p.owned {
		region.closeFile()
	}
}

// The mutex is held in all that follows.

func (p *Pool) make(access Access, bytes int) (*Region, error) {
	if p.maxBytes > 0 && uint64(bytes) > p.maxBytes {
		return nil, unusable(false, "%d bytes are more than the server maps, %d", bytes, p.maxBytes)
	}
	if p.closed {
		return nil, unusable(true, "the client is closed")
	}
	region, err := newRegion(access, bytes)
	if err != nil {
		return nil, unusable(false, "there is no memory to share: %v", err)
	}
	return region, nil
}

func (p *Pool) collect(region *Region) {
	if region.retired && region.uses == 0 {
		delete(p.owned, region)
		p.drop(region)
	}
}

func (p *Pool) drop(region *Region) {
	handle, known := p.handles[region]
	delete(p.handles, region)
	if known && p.control != nil && p.control.release(handle) != nil {
		p.disconnect()
	}
	region.close()
}

func (p *Pool) dropFree() {
	for _, region := range p.free {
		p.drop(region)
	}
	p.free = nil
}

func (p *Pool) disconnect() {
	clear(p.handles)
	if p.control != nil {
		p.control.close()
		p.control = nil
	}
}

// rounded is a size that other batches of about this one have too: at most an eighth more.
func rounded(bytes int) int {
	step := max(grain, 1<<max(0, bits.Len(uint(bytes))-4))
	return (bytes + step - 1) / step * step
}
