package counterweight_test

import (
	"context"
	"errors"
	"testing"
	"time"

	cw "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/internal/servertest"
)

func TestAServerThatFreezesIsNoticed(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t)
	// No context of the test's: what ends the call is keepalive.
	client := dial(t, server.Address, cw.WithoutRetry(), cw.WithTimeout(time.Hour), cw.ImpatientKeepalive)
	if _, err := client.Correct(background(t), threeTokens(), cw.Preset("token_tis")); err != nil {
		t.Fatal(err)
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := client.Correct(context.Background(), threeTokens(), cw.Preset("token_tis"))
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, cw.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Error("the call goes on")
		_ = client.Close()
		<-done
	}
}
