package counterweight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"google.golang.org/grpc/codes"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/sharedmemory"
)

// alignment is that of what is put into regions: a cache line.
const alignment = 64

// A place is a range of a region.
type place struct {
	region *sharedmemory.Region
	offset int
	length int
}

func (p place) bytes() []byte { return p.region.Bytes()[p.offset : p.offset+p.length] }

// A destination is where the server writes an output.
type destination struct {
	place
	role  pb.TensorRole
	dtype pb.DType
}

// An exchange is one batch in shared memory. Inputs that do not lie there are copied there,
// outputs from there. It is closed in the end, whatever happened.
type exchange struct {
	call    *call
	pool    *sharedmemory.Pool
	inputs  []place
	outputs []destination
	// taken are regions of the pool's, used those of the caller's.
	taken, used []*sharedmemory.Region
	// waits: there is no answer, so that the server may be at work.
	waits   bool
	renewed bool
}

// place finds room for inputs and outputs, and copies inputs that are not in place.
func (e *exchange) place(ctx context.Context) error {
	inputs := make([][]byte, len(e.call.tensors))
	for i := range inputs {
		inputs[i] = e.call.tensors[i].Data
	}
	var err error
	if e.inputs, err = e.find(ctx, inputs, sharedmemory.Read); err != nil {
		return err
	}
	for i, place := range e.inputs {
		if place.region != nil && !same(place.bytes(), inputs[i]) {
			copy(place.bytes(), inputs[i])
		}
	}
	return e.placeOutputs(ctx)
}

func (e *exchange) placeOutputs(ctx context.Context) error {
	var memory [][]byte
	for _, role := range e.expected() {
		for _, array := range e.call.arrays(&e.call.into) {
			if array.role != role || array.size == 0 {
				continue
			}
			e.outputs = append(e.outputs, destination{
				place: place{length: array.size}, role: role, dtype: array.dtype,
			})
			memory = append(memory, array.bytes)
		}
	}
	sizes := make([]int, len(memory))
	for i := range sizes {
		sizes[i] = e.outputs[i].length
	}
	places, err := e.findSized(ctx, memory, sizes, sharedmemory.Write)
	for i := range places {
		e.outputs[i].place = places[i]
	}
	return err
}

// expected are the outputs that the answer may have. Which of them a method has by default,
// only the server knows; it ignores the destinations of others.
func (e *exchange) expected() []pb.TensorRole {
	if roles := e.call.head.GetOutputs(); len(roles) > 0 {
		return roles
	}
	roles := []pb.TensorRole{outputRoles[OutputWeights], outputRoles[OutputKeepMask]}
	if e.call.batch.CurrentLogProbs != nil {
		roles = append(roles, outputRoles[OutputGradient])
	}
	return roles
}

func (e *exchange) find(ctx context.Context, memory [][]byte, access sharedmemory.Access) ([]place, error) {
	sizes := make([]int, len(memory))
	for i := range memory {
		sizes[i] = len(memory[i])
	}
	return e.findSized(ctx, memory, sizes, access)
}

// findSized finds the places of memory that is the caller's shared already, and makes others
// in one region.
func (e *exchange) findSized(ctx context.Context, memory [][]byte, sizes []int, access sharedmemory.Access) ([]place, error) {
	places := make([]place, len(memory))
	total := 0
	for i, size := range sizes {
		places[i].length = size
		if size == 0 {
			continue
		}
		if len(memory[i]) == size {
			if region, offset := e.pool.Find(memory[i], access); region != nil {
				e.used = append(e.used, region)
				places[i].region, places[i].offset = region, offset
				continue
			}
		}
		places[i].offset = total
		total += (size + alignment - 1) / alignment * alignment
	}
	if total == 0 {
		return places, nil
	}
	region, err := e.pool.Take(access, total)
	if err != nil {
		return nil, err
	}
	e.taken = append(e.taken, region)
	for i := range places {
		if places[i].length > 0 && places[i].region == nil {
			places[i].region = region
		}
	}
	_, err = e.pool.Handle(ctx, region) // what is refused need not be filled
	return places, err
}

func (e *exchange) describe(ctx context.Context, place place) (*pb.SharedMemoryRange, error) {
	handle, err := e.pool.Handle(ctx, place.region)
	return &pb.SharedMemoryRange{
		Handle: handle[:], Offset: uint64(place.offset), Length: uint64(place.length),
	}, err
}

// take copies an output to where it stays, unless it is there.
func (e *exchange) take(role pb.TensorRole, to []byte) error {
	for i := range e.outputs {
		if from := &e.outputs[i]; from.role == role && from.length == len(to) {
			if !same(from.bytes(), to) {
				copy(to, from.bytes())
			}
			return nil
		}
	}
	return fmt.Errorf("%v has another size than was asked for", role)
}

// shouldResend returns whether the next message avoids the cause of err, a refusal of this one.
func (e *exchange) shouldResend(err error) (resend bool, unusable error) {
	var failed *CallError
	if !errors.As(err, &failed) {
		return false, nil
	}
	switch failed.Code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted:
		e.waits = false // the server has done with the request, or has not begun
	}
	var invalid *InvalidRequestError
	if errors.As(err, &invalid) {
		about := func(v Violation) bool { return strings.Contains(v.Field, "shared_memory") }
		if len(invalid.Violations) > 0 && !slices.ContainsFunc(invalid.Violations, about) {
			return false, nil
		}
	} else if failed.Code != codes.FailedPrecondition {
		return false, nil
	}
	if e.renewed {
		return false, &sharedmemory.UnusableError{Reason: "the server does not know memory that it took: " + err.Error()}
	}
	// It was restarted, or lost us.
	e.renewed = true
	e.pool.ForgetHandles()
	return true, nil
}

// close gives the regions back; without an answer the server may still use them.
func (e *exchange) close() {
	for _, region := range e.taken {
		if e.waits {
			e.pool.Discard(region)
		} else {
			e.pool.GiveBack(region)
		}
	}
	for _, region := range e.used {
		e.pool.Leave(region)
	}
}

func same(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }
