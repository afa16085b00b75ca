//go:build !linux

package sharedmemory

import "context"

// Supported reports whether this system has what shared memory needs.
const Supported = false

// A Region does not exist on this system.
type Region struct{ Access Access }

// A Pool has no regions on this system.
type Pool struct{}

var errUnsupported = unusable(true, "shared memory needs Linux")

func NewPool() *Pool                                          { return &Pool{} }
func (*Region) Bytes() []byte                                 { return nil }
func (*Pool) MoveTo(string, uint64)                           {}
func (*Pool) Take(Access, int) (*Region, error)               { return nil, errUnsupported }
func (*Pool) GiveBack(*Region)                                {}
func (*Pool) Discard(*Region)                                 {}
func (*Pool) Allocate(Access, int) (*Region, error)           { return nil, errUnsupported }
func (*Pool) Retire(*Region)                                  {}
func (*Pool) Find([]byte, Access) (*Region, int)              { return nil, 0 }
func (*Pool) Leave(*Region)                                   {}
func (*Pool) Handle(context.Context, *Region) (Handle, error) { return Handle{}, errUnsupported }
func (*Pool) ForgetHandles()                                  {}
func (*Pool) Trim() bool                                      { return false }
func (*Pool) Close()                                          {}
