package counterweight

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// DeclareRun declares which method a run uses, once, from what the trainer trains with. From then
// on results of the run's batches that another method corrected have a warning with both names. Each
// of several servers needs the declaration, and one that was started again. It returns the method's
// name and sentences, as that the run declared another method before. Errors are those of Correct, with the code codes.Unimplemented from a server without the feature
// "declare_run".
func (c *Client) DeclareRun(ctx context.Context, run string, method Method) (string, []string, error) {
	id := newID()
	if method == nil {
		return "", nil, refuse(id, Violation{"method", "is required"})
	}
	message, violations := method.message()
	if len(violations) > 0 {
		return "", nil, refuse(id, violations...)
	}
	request := &pb.DeclareRunRequest{RequestId: id, Labels: &pb.Labels{Run: run}, Method: message}
	var answer *pb.DeclareRunResponse
	err := c.simple(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		answer, err = c.service.DeclareRun(ctx, request, options...)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return answer.GetMethod(), answer.GetWarnings(), nil
}
