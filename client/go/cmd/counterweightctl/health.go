package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	counterweight "github.com/counterweight/counterweight/client/go"
)

func newHealth(connection *connection) *cobra.Command {
	wait := time.Duration(0)
	command := &cobra.Command{
		Use:   "health",
		Short: "Print whether the server takes requests; exit code 1 if it does not",
		Long: "Health prints \"serving\", \"draining\" (a server that is told to stop, or whose device failed, is\n" +
			"there but takes no new batches) or why there is no server. Only the first is exit code 0.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if wait < 0 {
				return &usageError{fmt.Errorf("--wait must not be negative; got %v", wait)}
			}
			return connection.with(func(client *counterweight.Client) error {
				end := time.Now().Add(wait)
				for {
					health, err := client.Health(command.Context())
					switch {
					case err == nil && health == counterweight.Serving:
						fmt.Fprintln(command.OutOrStdout(), "serving")
						return nil
					case err == nil:
						err = errors.New("the server is draining: it takes no new batches")
					case !errors.Is(err, counterweight.ErrUnavailable):
						return err
					}
					if time.Now().After(end) {
						return err
					}
					select {
					case <-time.After(100 * time.Millisecond):
					case <-command.Context().Done():
						return command.Context().Err()
					}
				}
			})
		},
	}
	command.Flags().DurationVar(&wait, "wait", 0, "how long to wait for a server that takes requests")
	return command
}
