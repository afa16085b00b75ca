package sharedmemory

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system has what shared memory needs.
const Supported = true

// A Region is a memfd with all its pages, mapped here until Close. The collector does not
// know the mapping: it stays until Close, whatever points to it.
type Region struct {
	// Access is what the server may do.
	Access Access

	file   *os.File
	memory []byte
	// uses counts the calls that are at work; retired: the owner has closed it. Both are
	// guarded by the pool.
	uses    int
	retired bool
}

// newRegion makes one of at least that many zero bytes, at least 1.
func newRegion(access Access, bytes int) (*Region, error) {
	page := os.Getpagesize()
	size := (bytes + page - 1) / page * page
	fd, err := unix.MemfdCreate("counterweight", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	region := &Region{Access: access, file: os.NewFile(uintptr(fd), "counterweight")}
	// The pages must exist: what is sparse could not be counted, and would be filled by readers.
	if err = unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		err = fmt.Errorf("fallocate: %w", err)
	} else if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		err = fmt.Errorf("F_ADD_SEALS: %w", err)
	} else if region.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		err = fmt.Errorf("mmap: %w", err)
	}
	if err != nil {
		_ = region.file.Close()
		return nil, err
	}
	return region, nil
}

// Bytes are all of it, a multiple of the page size.
func (r *Region) Bytes() []byte { return r.memory }

// find returns where bytes lie in the region.
func (r *Region) find(bytes []byte) (offset int, ok bool) {
	begin, at := uintptr(unsafe.Pointer(&r.memory[0])), uintptr(unsafe.Pointer(&bytes[0]))
	if at < begin || at+uintptr(len(bytes)) > begin+uintptr(len(r.memory)) {
		return 0, false
	}
	return int(at - begin), true
}

// closeFile gives back the descriptor: the region cannot be registered any more.
func (r *Region) closeFile() { _ = r.file.Close() }

// close gives back the descriptor and the mapping.
func (r *Region) close() {
	r.closeFile()
	if r.memory != nil {
		_ = unix.Munmap(r.memory)
		r.memory = nil
	}
}
