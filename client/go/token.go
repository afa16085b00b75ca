package counterweight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// WithToken sends "authorization: Bearer token" with every call. The target must be spoken
// to by TLS, or be on this machine.
func WithToken(token string) ClientOption {
	return withTokens(func(context.Context) (string, error) { return token, nil })
}

// WithTokenFile reads the token from a file before every call, so that it may be renewed;
// white space around it is left out.
func WithTokenFile(path string) ClientOption {
	return withTokens(func(context.Context) (string, error) {
		content, err := readRegular(path)
		return strings.TrimSpace(string(content)), err
	})
}

// readRegular reads a file, and refuses pipes and devices, on which a call would wait.
func readRegular(path string) ([]byte, error) {
	found, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !found.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return os.ReadFile(path)
}

// WithTokenSource calls the source before every call. Its error ends the call with UNAUTHENTICATED.
func WithTokenSource(source func(ctx context.Context) (string, error)) ClientOption {
	if source == nil {
		return func(*settings) error { return errors.New("counterweight: WithTokenSource needs a source") }
	}
	return withTokens(source)
}

func withTokens(source func(context.Context) (string, error)) ClientOption {
	return func(s *settings) error {
		s.tokens = &tokens{source: source}
		return nil
	}
}

// tokens implements credentials.PerRPCCredentials.
type tokens struct {
	source func(context.Context) (string, error)
}

func (t *tokens) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := t.source(ctx)
	if err == nil && (token == "" || strings.ContainsAny(token, "\r\n")) {
		err = errors.New("it is empty or has a line break")
	}
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, fmt.Sprintf("the token: %v", err))
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity is false: New has looked at the target, and gRPC would refuse
// Unix sockets.
func (t *tokens) RequireTransportSecurity() bool { return false }
