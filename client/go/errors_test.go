package counterweight_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

// fields are the violations' of an error, which must be an InvalidRequestError.
func fields(t *testing.T, err error) []string {
	t.Helper()
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) {
		t.Fatalf("%v is no InvalidRequestError", err)
	}
	if invalid.Code != codes.InvalidArgument || status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v has code %v, and gRPC's is %v", err, invalid.Code, status.Code(err))
	}
	if invalid.RequestID == "" {
		t.Errorf("%v has no request_id", err)
	}
	var call *cw.CallError
	if !errors.As(err, &call) || call.Retryable {
		t.Errorf("%v may be tried again", err)
	}
	var names []string
	for _, violation := range invalid.Violations {
		if violation.Description == "" || !strings.Contains(err.Error(), violation.Description) {
			t.Errorf("%q does not say %q", err, violation.Description)
		}
		names = append(names, violation.Field)
	}
	return names
}

func TestTheServersViolationsAreAllListed(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	batch := threeTokens()
	batch.ResponseMask[1] = 7
	for _, transport := range []cw.Transport{cw.Unary, cw.Stream} {
		_, err := client.Correct(background(t), batch, cw.Preset("token_tis", cw.Parameters{"uper": 1}),
			cw.Run("no spaces"), cw.Via(transport))
		named := strings.Join(fields(t, err), " ")
		for _, field := range []string{"labels.run", "method.preset.parameters[uper]"} {
			if !strings.Contains(named, field) {
				t.Errorf("%v: %s is not among %s", transport, field, named)
			}
		}
	}
	_, err := client.Correct(background(t), batch, cw.Preset("token_tis"))
	if named := fields(t, err); len(named) != 1 || !strings.Contains(named[0], "tensors[0]") {
		t.Errorf("%v", named)
	}
}

func TestWhatTheWireCannotExpressIsRefusedByName(t *testing.T) {
	client := dial(t, "127.0.0.1:1") // none listens: nothing is sent
	good := cw.Preset("token_tis")
	shared := make([]float32, 3)
	for name, test := range map[string]struct {
		batch   cw.Batch
		method  cw.Method
		options []cw.Option
		field   string
	}{
		"a length": {
			cw.Batch{Shape: [2]int{1, 3}, ResponseMask: make([]uint8, 3), OldLogProbs: make([]float32, 2)},
			good, nil, "Batch.OldLogProbs",
		},
		"no mask":         {cw.Batch{Shape: [2]int{1, 3}}, good, nil, "Batch.ResponseMask"},
		"a negative size": {cw.Batch{Shape: [2]int{-1, 3}}, good, nil, "Batch.Shape"},
		"a huge size":     {cw.Batch{Shape: [2]int{1 << 62, 4}}, good, nil, "Batch.Shape"},
		"two layouts": {
			cw.Batch{Shape: [2]int{1, 3}, SequenceLengths: []int64{3}}, good, nil, "Batch.Shape",
		},
		"a negative length": {cw.Batch{SequenceLengths: []int64{4, -1}}, good, nil, "Batch.SequenceLengths[1]"},
		"a padded width":    {cw.Batch{PaddedLength: 3}, good, nil, "Batch.PaddedLength"},
		"no output":         {*threeTokens(), good, []cw.Option{cw.Outputs()}, "Outputs"},
		"no such output":    {*threeTokens(), good, []cw.Option{cw.Outputs(cw.OutputWeights, 99)}, "Outputs[1]"},
		"no such transport": {*threeTokens(), good, []cw.Option{cw.Via(9)}, "Via"},
		"a short slice": {
			*threeTokens(), good, []cw.Option{cw.Into(cw.Arrays{Weights: shared[:2]})}, "Into.Weights",
		},
		"a slice that is not asked for": {
			*threeTokens(), good,
			[]cw.Option{cw.Outputs(cw.OutputKeepMask), cw.Into(cw.Arrays{Weights: shared})}, "Into.Weights",
		},
		"two slices in one": {
			*threeTokens(), good, []cw.Option{cw.Into(cw.Arrays{Weights: shared, Gradient: shared})}, "Into.Gradient",
		},
		"a block": {
			*threeTokens(), cw.Dialect("verl", map[string]any{"a": []any{1, make(chan int)}}), nil,
			"method.dialect.block.a[1]",
		},
	} {
		_, err := client.Correct(background(t), &test.batch, test.method, test.options...)
		if named := fields(t, err); len(named) != 1 || named[0] != test.field {
			t.Errorf("%s: %v instead of %s", name, named, test.field)
		}
	}
	for _, missing := range []func() error{
		func() error { _, err := client.Correct(background(t), nil, good); return err },
		func() error { _, err := client.Correct(background(t), threeTokens(), nil); return err },
	} {
		if named := fields(t, missing()); len(named) != 1 {
			t.Errorf("%v", named)
		}
	}
	batch := threeTokens()
	into := cw.Into(cw.Arrays{KeepMask: batch.ResponseMask})
	_, err := client.Correct(background(t), batch, good, into)
	if named := fields(t, err); len(named) != 1 || named[0] != "Into.KeepMask" {
		t.Errorf("%v", named)
	}
}

func TestASliceForAnOutputThatTheMethodLacksIsAnError(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"),
		cw.Into(cw.Arrays{Gradient: make([]float32, 3)}))
	if named := fields(t, err); len(named) != 1 || named[0] != "Into.Gradient" {
		t.Errorf("%v", named)
	}
}

func TestABatchBeyondALimitIsOverloadThatDoesNotPass(t *testing.T) {
	client := dial(t, servertest.Start(t, "--max_message_bytes=1024").Address)
	for _, transport := range []cw.Transport{cw.Unary} {
		_, err := client.Correct(background(t), twoLogProbs(100, 100), cw.Preset("token_tis"), cw.Via(transport))
		var overloaded *cw.OverloadedError
		if !errors.As(err, &overloaded) || overloaded.Retryable || overloaded.RetryAfter != 0 {
			t.Errorf("%v: %v", transport, err)
		}
	}
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	client := dial(t, "127.0.0.1:1", cw.WithRetry(cw.RetryPolicy{Attempts: 2}))
	_, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis"))
	if !errors.Is(err, cw.ErrUnavailable) || status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if _, err := client.ServerInfo(background(t)); !errors.Is(err, cw.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if _, err := client.Health(background(t)); !errors.Is(err, cw.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v was not ended by its context", err)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for want, option := range map[string]cw.ClientOption{
		"timeout":        cw.WithTimeout(-1),
		"chunk size":     cw.WithChunkBytes(MaxChunkPlusOne),
		"transport":      cw.WithTransport(17),
		"RetryPolicy":    cw.WithRetry(cw.RetryPolicy{MaxPause: -1}),
		"RootCAs":        cw.WithTLS(cw.TLSFiles{RootCAs: "/no/such/file"}),
		"both":           cw.WithTLS(cw.TLSFiles{Key: "key.pem"}),
		"needs a config": cw.WithTLSConfig(nil),
		"needs a source": cw.WithTokenSource(nil),
		"only sent over": cw.WithToken("secret"),
	} {
		if _, err := cw.New("example.org:443", option); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// MaxChunkPlusOne is one more than a chunk may have.
const MaxChunkPlusOne = cw.MaxChunkBytes + 1
