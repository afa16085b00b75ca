package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/counterweight/counterweight/client/go/cmd/counterweightctl/drift"
)

// watching has the flags of watch.
type watching struct {
	metrics  string
	interval time.Duration
	count    int
}

// columns are what watch prints, by the names of package drift.
var columns = []struct{ title, name string }{
	{"kl", "kl_nats"},
	{"k3", "k3_nats"},
	{"ess", "effective_sample_size_ratio"},
	{"kept", "kept_token_ratio"},
	{"clipped", "weight_high_ratio"},
	{"ppl", "ppl_ratio"},
	{"max w", "weight_max"},
}

func newWatch() *cobra.Command {
	asked := &watching{}
	command := &cobra.Command{
		Use:   "watch [RUN]",
		Short: "Print the drift of a run, a line for each new batch",
		Long: "Watch reads the server's page for Prometheus, and prints a line whenever the run has had new batches. With\n" +
			"no RUN it lists the runs that there are.\n\n" +
			"Columns: batches so far; kl and k3, nats per token; ess, the effective sample size as a share of the tokens (1 =\n" +
			"on-policy); kept, the share of tokens in the keep mask; clipped, the share whose weight was above the upper\n" +
			"bound; ppl, the ratio of perplexities; max w, the largest weight.",
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
			runs, err := asked.read(command.Context())
			if err != nil || len(given) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return drift.Names(runs), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if asked.interval <= 0 {
				return &usageError{fmt.Errorf("--interval must be above 0; got %v", asked.interval)}
			}
			if len(arguments) == 0 {
				return asked.list(command.Context(), command.OutOrStdout())
			}
			return asked.watch(command.Context(), command.OutOrStdout(), arguments[0])
		},
	}
	command.Flags().StringVar(&asked.metrics, "metrics", environment("COUNTERWEIGHT_METRICS", "http://localhost:9464/metrics"),
		"address of the page; default: the environment's COUNTERWEIGHT_METRICS")
	command.Flags().DurationVar(&asked.interval, "interval", time.Second, "pause between two looks")
	command.Flags().IntVar(&asked.count, "count", 0, "end after so many lines; 0: at an interrupt")
	return command
}

// read looks once, for no longer than is usual between two looks.
func (w *watching) read(ctx context.Context) (map[string]drift.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return drift.Read(ctx, w.metrics)
}

func (w *watching) list(ctx context.Context, output io.Writer) error {
	runs, err := w.read(ctx)
	if err != nil {
		return err
	}
	for _, name := range drift.Names(runs) {
		fmt.Fprintf(output, "%s\t%.0f batches\n", name, runs[name].Batches())
	}
	return nil
}

func (w *watching) watch(ctx context.Context, output io.Writer, name string) error {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	printHeader(output)
	batches, lines := -1.0, 0
	failing := false
	for {
		runs, err := w.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			// A server that restarts is back soon; one line reports its absence.
			if !failing {
				fmt.Fprintln(output, err)
			}
			failing = true
		default:
			failing = false
			if run, known := runs[name]; known && run.Batches() != batches {
				batches = run.Batches()
				printLine(output, run)
				if lines++; lines == w.count {
					return nil
				}
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func printHeader(output io.Writer) {
	fmt.Fprintf(output, "%8s  %8s", "time", "batches")
	for _, column := range columns {
		fmt.Fprintf(output, "  %9s", column.title)
	}
	fmt.Fprintln(output)
}

func printLine(output io.Writer, run drift.Run) {
	fmt.Fprintf(output, "%8s  %8.0f", time.Now().Format(time.TimeOnly), run.Batches())
	for _, column := range columns {
		value, there := run[column.name]
		if !there || math.IsNaN(value) {
			fmt.Fprintf(output, "  %9s", "-")
			continue
		}
		fmt.Fprintf(output, "  %9.4g", value)
	}
	fmt.Fprintln(output)
}
