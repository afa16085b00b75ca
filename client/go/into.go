package counterweight

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// An array is one of Arrays as bytes.
type array struct {
	name  string
	role  pb.TensorRole
	dtype pb.DType
	given bool
	bytes []byte
	// size is how many bytes it must have.
	size int
}

// arrays are all of them, in the order of the Output constants.
func (c *call) arrays(a *Arrays) [wire.MostOutputs]array {
	positions, sequences := len(c.batch.ResponseMask), c.batch.sequences()
	return [...]array{
		describe("Weights", OutputWeights, pb.DType_D_TYPE_F32, a.Weights, positions),
		describe("KeepMask", OutputKeepMask, pb.DType_D_TYPE_U8, a.KeepMask, positions),
		describe("TokenReasons", OutputTokenReasons, pb.DType_D_TYPE_U16, a.TokenReasons, positions),
		describe("SequenceReasons", OutputSequenceReasons, pb.DType_D_TYPE_U16, a.SequenceReasons, sequences),
		describe("Gradient", OutputGradient, pb.DType_D_TYPE_F32, a.Gradient, positions),
	}
}

func describe[E wire.Element](name string, output Output, dtype pb.DType, slice []E, length int) array {
	return array{name, outputRoles[output], dtype, slice != nil, wire.Bytes(slice), length * wire.SizeOf[E]()}
}

// checkInto finds everything that would be wrong with Into after the request was sent.
func (c *call) checkInto() []Violation {
	var violations []Violation
	refuse := func(name, format string, values ...any) {
		violations = append(violations, Violation{"Into." + name, fmt.Sprintf(format, values...)})
	}
	arrays := c.arrays(&c.into)
	for i, array := range arrays {
		if !array.given {
			continue
		}
		if len(array.bytes) != array.size {
			refuse(array.name, "has %d bytes, but the output has %d", len(array.bytes), array.size)
		}
		if c.outputsGiven && (c.dropKeepMask || !slices.Contains(c.head.GetOutputs(), array.role)) {
			refuse(array.name, "is not asked for; name it in Outputs")
		}
		for _, other := range arrays[:i] {
			if wire.Overlap(array.bytes, other.bytes) {
				refuse(array.name, "shares memory with Into.%s", other.name)
			}
		}
		if wire.Overlap(array.bytes, c.batch.ResponseMask) {
			refuse(array.name, "shares memory with Batch.ResponseMask")
		}
		for _, input := range c.batch.inputs() {
			if wire.Overlap(array.bytes, wire.Bytes(input.data)) {
				refuse(array.name, "shares memory with Batch.%s", input.name)
			}
		}
	}
	return violations
}

// place makes room in the result for an output of the answer: that of Into, or new one.
func (c *call) place(result *Result, role pb.TensorRole, dtype pb.DType) ([]byte, error) {
	positions, sequences := len(c.batch.ResponseMask), c.batch.sequences()
	switch role {
	case outputRoles[OutputWeights]:
		return take(&result.Weights, c.into.Weights, positions, dtype, pb.DType_D_TYPE_F32)
	case outputRoles[OutputKeepMask]:
		return take(&result.KeepMask, c.into.KeepMask, positions, dtype, pb.DType_D_TYPE_U8)
	case outputRoles[OutputTokenReasons]:
		return take(&result.TokenReasons, c.into.TokenReasons, positions, dtype, pb.DType_D_TYPE_U16)
	case outputRoles[OutputSequenceReasons]:
		return take(&result.SequenceReasons, c.into.SequenceReasons, sequences, dtype, pb.DType_D_TYPE_U16)
	case outputRoles[OutputGradient]:
		return take(&result.Gradient, c.into.Gradient, positions, dtype, pb.DType_D_TYPE_F32)
	}
	return nil, fmt.Errorf("it has an output %v", role)
}

func take[E wire.Element](to *[]E, given []E, length int, have, want pb.DType) ([]byte, error) {
	if *to != nil {
		return nil, errors.New("an output came twice")
	}
	if have != want {
		return nil, fmt.Errorf("an output is of %v instead of %v", have, want)
	}
	if *to = given; given == nil {
		*to = make([]E, length)
	}
	return wire.Bytes(*to), nil
}

// finish looks at the result as a whole.
func (c *call) finish(result *Result) error {
	var missing []Violation
	given, have := c.arrays(&c.into), c.arrays(&result.Arrays)
	for i := range given {
		if given[i].given && !have[i].given {
			// Left as it is, it would be taken for an answer.
			missing = append(missing, Violation{"Into." + given[i].name, "the method has no such output"})
		}
	}
	if missing != nil {
		return refuse(c.head.GetRequestId(), missing...)
	}
	if c.dropKeepMask {
		result.KeepMask = nil
	}
	return nil
}
