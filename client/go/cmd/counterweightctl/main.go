// Counterweightctl talks to a Counterweight server from the command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	counterweight "github.com/counterweight/counterweight/client/go"
)

// Exit codes, beside 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := newCommand()
	command.SetArgs(arguments)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "counterweightctl:", err)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// A usageError is a command line that is wrong.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// connection has the flags of every command that calls the server.
type connection struct {
	target    string
	tokenFile string
	tls       bool
	files     counterweight.TLSFiles
	timeout   time.Duration
}

func newCommand() *cobra.Command {
	connection := &connection{}
	root := &cobra.Command{
		Use:   "counterweightctl",
		Short: "Talk to a Counterweight server",
		Long: "Counterweightctl describes a Counterweight server and the drift of its runs.\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong command line.",
		Version:       counterweight.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVarP(&connection.target, "target", "t", environment("COUNTERWEIGHT_TARGET", "localhost:50051"),
		`server, "host:port" or "unix:/path"; default: the environment's COUNTERWEIGHT_TARGET`)
	flags.DurationVar(&connection.timeout, "timeout", counterweight.DefaultTimeout, "time for each call, retries included")
	flags.StringVar(&connection.tokenFile, "token-file", os.Getenv("COUNTERWEIGHT_TOKEN_FILE"), "file with the bearer token")
	flags.BoolVar(&connection.tls, "tls", false, "speak TLS, trusting the system's authorities unless --tls-ca is given")
	flags.StringVar(&connection.files.RootCAs, "tls-ca", "", "PEM file of the authorities to trust")
	flags.StringVar(&connection.files.Certificate, "tls-cert", "", "PEM file of the client's certificate")
	flags.StringVar(&connection.files.Key, "tls-key", "", "PEM file of its key")
	flags.StringVar(&connection.files.ServerName, "tls-server-name", "", "name in the server's certificate")
	root.AddCommand(newInfo(connection), newMethods(connection), newHealth(connection), newWatch())
	for _, command := range append(root.Commands(), root) {
		if arguments := command.Args; arguments != nil {
			command.Args = func(command *cobra.Command, given []string) error {
				if err := arguments(command, given); err != nil {
					return &usageError{err}
				}
				return nil
			}
		}
	}
	return root
}

// dial connects with the flags' settings.
func (c *connection) dial() (*counterweight.Client, error) {
	if c.timeout <= 0 {
		return nil, &usageError{fmt.Errorf("--timeout must be above 0; got %v", c.timeout)}
	}
	options := []counterweight.ClientOption{counterweight.WithTimeout(c.timeout)}
	if c.tls || c.files != (counterweight.TLSFiles{}) {
		options = append(options, counterweight.WithTLS(c.files))
	}
	if c.tokenFile != "" {
		options = append(options, counterweight.WithTokenFile(c.tokenFile))
	}
	client, err := counterweight.New(c.target, options...)
	if err != nil {
		return nil, &usageError{err}
	}
	return client, nil
}

// with runs a function with a client.
func (c *connection) with(use func(*counterweight.Client) error) error {
	client, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return use(client)
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
