package counterweight_test

import (
	"errors"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestDeclareRunWarnsOfAnotherMethod(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	declare := func(method cw.Method, name string, want ...string) {
		t.Helper()
		got, warnings, err := client.DeclareRun(background(t), "go", method)
		if err != nil || got != name || len(warnings) != len(want) || len(want) == 1 && warnings[0] != want[0] {
			t.Errorf("got %v %q %v", got, warnings, err)
		}
	}
	warnings := func(run string, method cw.Method) []string {
		t.Helper()
		result, err := client.Correct(background(t), threeTokens(), method, cw.Run(run))
		if err != nil {
			t.Fatal(err)
		}
		return result.Warnings
	}
	declare(cw.Preset("token_tis"), "token_tis")
	declare(cw.Preset("token_tis", cw.Parameters{"upper": 2}), "token_tis")
	if got := warnings("go", cw.Preset("token_tis")); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	want := []string{"run 'go' declares token_tis; this batch was corrected by icepop"}
	if got := warnings("go", cw.Preset("icepop")); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if got := warnings("other", cw.Preset("icepop")); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	declare(cw.Preset("icepop"), "icepop",
		"run 'go' declared token_tis before, which this declaration replaces by icepop")
}

func TestDeclareRunNamesWhatIsWrong(t *testing.T) {
	client := dial(t, servertest.Start(t).Address)
	_, _, err := client.DeclareRun(background(t), "", cw.Preset("no_such"))
	var invalid *cw.InvalidRequestError
	if !errors.As(err, &invalid) || len(invalid.Violations) != 2 {
		t.Errorf("got %v", err)
	}
	for _, method := range []cw.Method{nil, cw.Dialect("verl", map[string]any{"a": make(chan int)})} {
		if _, _, err := client.DeclareRun(background(t), "go", method); !errors.As(err, &invalid) {
			t.Errorf("got %v", err)
		}
	}
	old := dial(t, (&fakeserver.Server{}).Start(t))
	_, _, err = old.DeclareRun(background(t), "go", cw.Preset("token_tis"))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}
