package counterweight_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	cw "github.com/counterweight/counterweight/client/go"
	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
	"github.com/counterweight/counterweight/client/go/internal/fakeserver"
)

func TestAServerOfAnotherVersionIsToldOfOnce(t *testing.T) {
	var log bytes.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(usual)
	for version, warns := range map[string]bool{cw.Version: false, "0.1.9": false, "0.2.0": true, "1.1.0": true, "": false} {
		log.Reset()
		server := &fakeserver.Server{OnInfo: func() (*pb.GetServerInfoResponse, error) {
			return &pb.GetServerInfoResponse{Version: version}, nil
		}}
		client := dial(t, server.Start(t))
		for range 2 {
			if _, err := client.ServerInfo(background(t)); err != nil {
				t.Fatal(err)
			}
		}
		if lines := strings.Count(log.String(), "\n"); (lines == 1) != warns || lines > 1 {
			t.Errorf("%q: %s", version, log.String())
		}
	}
}
