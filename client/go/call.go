package counterweight

import (
	"errors"
	"fmt"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/wire"
)

// A call is one Correct: the request without its bytes, and what the caller wants.
type call struct {
	head         pb.CorrectRequest
	batch        *Batch
	tensors      []wire.Tensor
	bytes        int64
	outputs      []Output
	outputsGiven bool
	shadows      []Method
	// dropKeepMask: the client requested it to have an output; the caller did not.
	dropKeepMask bool
	into         Arrays
	transport    Transport
	progress     func(sent, all int64)
	attempts     attempts

	// Room for what the above points to.
	layout paddedLayout
	inputs [wire.MostInputs]wire.Tensor
}

var outputRoles = [...]pb.TensorRole{
	OutputWeights:         pb.TensorRole_TENSOR_ROLE_WEIGHTS,
	OutputKeepMask:        pb.TensorRole_TENSOR_ROLE_KEEP_MASK,
	OutputTokenReasons:    pb.TensorRole_TENSOR_ROLE_TOKEN_REASONS,
	OutputSequenceReasons: pb.TensorRole_TENSOR_ROLE_SEQUENCE_REASONS,
	OutputGradient:        pb.TensorRole_TENSOR_ROLE_GRADIENT,
	OutputLoss:            pb.TensorRole_TENSOR_ROLE_UNSPECIFIED,
}

func (c *Client) newCall(batch *Batch, method Method, options []Option) (*call, error) {
	call := &call{batch: batch, transport: c.settings.transport, attempts: c.newAttempts()}
	for _, option := range options {
		option(call)
	}
	if call.head.RequestId == "" {
		call.head.RequestId = newID()
	}
	if batch == nil || method == nil {
		return nil, refuse(call.head.RequestId, Violation{"Correct", "needs a batch and a method"})
	}
	violations := batch.violations()
	message, wrong := method.message()
	violations = append(violations, wrong...)
	call.head.Method = message
	violations = append(violations, call.readShadows()...)
	call.head.Layout = batch.layout(&call.layout)
	call.head.GroupIds = batch.GroupIDs
	call.head.RowDivisors = batch.RowDivisors
	call.head.VersionSpans = batch.versionSpans()
	violations = append(violations, call.readOutputs()...)
	if err := call.transport.check(); err != nil {
		violations = append(violations, Violation{"Via", err.Error()})
	}
	if len(violations) == 0 {
		violations = call.checkInto()
	}
	if len(violations) > 0 {
		return nil, refuse(call.head.RequestId, violations...)
	}
	call.tensors = batch.tensors(&call.inputs)
	for i := range call.tensors {
		call.bytes += int64(len(call.tensors[i].Data))
	}
	return call, nil
}

// readShadows fills in the methods of WithShadows.
func (c *call) readShadows() []Violation {
	var violations []Violation
	for i, method := range c.shadows {
		field := fmt.Sprintf("Shadows[%d]", i)
		if method == nil {
			violations = append(violations, Violation{field, "is nil"})
			continue
		}
		message, wrong := method.message()
		for _, each := range wrong {
			violations = append(violations, Violation{field, each.Field + ": " + each.Description})
		}
		c.head.Shadows = append(c.head.Shadows, message)
	}
	return violations
}

// readOutputs fills in the requested outputs.
func (c *call) readOutputs() []Violation {
	if !c.outputsGiven {
		_, isDialect := c.head.GetMethod().GetMethod().(*pb.Method_Dialect)
		c.head.ComputeLoss = isDialect && !c.head.GetOmitLoss() && c.batch.CurrentLogProbs != nil && c.batch.Advantages != nil
		return nil
	}
	if len(c.outputs) == 0 {
		return []Violation{{"Outputs", "must name at least one; leave the option out for the default"}}
	}
	var violations []Violation
	for i, output := range c.outputs {
		switch {
		case output < OutputWeights || output > OutputLoss:
			violations = append(violations, Violation{fmt.Sprintf("Outputs[%d]", i), "is none of the Output constants"})
		case output == OutputLoss:
			c.head.ComputeLoss = true
		default:
			c.head.Outputs = append(c.head.Outputs, outputRoles[output])
		}
	}
	if len(c.head.Outputs) == 0 && len(violations) == 0 {
		// No tensor at all would be the server's default, which is several; this is the smallest.
		c.head.Outputs = []pb.TensorRole{pb.TensorRole_TENSOR_ROLE_KEEP_MASK}
		c.dropKeepMask = true
	}
	return violations
}

// check refuses an answer that does not match the request.
func (c *call) check(response *wire.Response) error {
	if err := c.checkBounds(response.Head.GetResolvedBounds()); err != nil {
		return err
	}
	return c.checkOutputs(response.Outputs)
}

// checkBounds refuses an answer of a server that does not know bounds of calm steps.
func (c *call) checkBounds(resolved []*pb.ResolvedBound) error {
	weight := c.head.GetMethod().GetConfig().GetImportanceWeight()
	asked := len(c.head.GetMethod().GetPreset().GetCalmQuantiles()) > 0 ||
		(weight != nil && weight.UpperCalmQuantile != nil)
	if asked && len(resolved) == 0 {
		return errors.New("the server is too old for bounds of calm steps, the feature \"calm_bounds\"; " +
			"give a number")
	}
	return nil
}

// checkOutputs refuses an answer with other outputs than the request names.
func (c *call) checkOutputs(outputs []wire.Output) error {
	asked := c.head.GetOutputs()
	if len(asked) == 0 {
		return nil
	}
	for i, output := range outputs {
		if i >= len(asked) || output.Role != asked[i] {
			return fmt.Errorf("it has an output %v that was not asked for there", output.Role)
		}
	}
	if len(outputs) < len(asked) {
		return fmt.Errorf("it lacks the output %v", asked[len(outputs)])
	}
	return nil
}

func (c *call) labels() *pb.Labels {
	if c.head.Labels == nil {
		c.head.Labels = &pb.Labels{}
	}
	return c.head.Labels
}

func (c *call) report(sent int64) {
	if c.progress != nil {
		c.progress(sent, c.bytes)
	}
}

// withHeads runs encode while the request has its tensors, without their bytes.
func (c *call) withHeads(encode func() error) error {
	c.head.Tensors = make([]*pb.Tensor, len(c.tensors))
	for i := range c.tensors {
		c.head.Tensors[i] = c.tensors[i].Head()
	}
	defer func() { c.head.Tensors, c.head.Destinations = nil, nil }()
	return encode()
}
