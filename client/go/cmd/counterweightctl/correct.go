package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	counterweight "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/cmd/counterweightctl/batchfile"
)

// correction has the flags of correct.
type correction struct {
	method     string
	parameters []string
	dialect    string
	block      string
	release    string
	output     string
	run        string
	version    int64
	nonFinite  string
	transport  string
	asJSON     bool
}

var policies = map[string]counterweight.NonFinitePolicy{
	"reject":     counterweight.NonFiniteReject,
	"drop":       counterweight.NonFiniteDrop,
	"neutralize": counterweight.NonFiniteNeutralize,
}

func newCorrect(connection *connection) *cobra.Command {
	asked := &correction{}
	command := &cobra.Command{
		Use:   "correct FILE",
		Short: "Correct the batch of a .npz or Parquet file",
		Long: "Correct reads a batch, prints its drift, and writes weights and keep mask with --output.\n\n" +
			"A .npz file has the arrays rollout_log_probs, old_log_probs, current_log_probs, ref_log_probs, advantages and\n" +
			"response_mask, all [B, T], or all one-dimensional beside sequence_lengths. A Parquet file has one row for each\n" +
			"sequence, and columns of lists of these names. Advantages may be one per sequence. With --policy-version drift\n" +
			"is also shown by staleness, if the file has policy_versions (the version that sampled each token, -1 where\n" +
			"unknown) or version_spans. A --dialect also gets group_ids.",
		Example: "  counterweightctl correct batch.npz --method geo_rs_token_tis --output result.npz\n" +
			"  counterweightctl correct batch.parquet --method token_tis --parameter upper=3 --run my-run\n" +
			"  counterweightctl correct batch.npz --dialect verl --block config.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return connection.with(func(client *counterweight.Client) error {
				return asked.correct(command, client, arguments[0])
			})
		},
	}
	flags := command.Flags()
	flags.StringVarP(&asked.method, "method", "m", "", "named method; see counterweightctl methods")
	flags.StringArrayVarP(&asked.parameters, "parameter", "p", nil, "NAME=NUMBER, a parameter of the method; may be repeated")
	flags.StringVar(&asked.dialect, "dialect", "", "system of --block: verl, trl, skyrl, openrlhf")
	flags.StringVar(&asked.block, "block", "", "YAML or JSON file with that system's configuration block; without it, its defaults")
	flags.StringVar(&asked.release, "release", "", "that system's release whose numbers are wanted")
	flags.StringVarP(&asked.output, "output", "o", "", ".npz or Parquet file for the results; it is overwritten")
	flags.StringVar(&asked.run, "run", "", "label of the drift metrics in Prometheus")
	flags.Int64Var(&asked.version, "policy-version", 0, "version of the policy being trained; needed for the file's policy_versions")
	flags.StringVar(&asked.nonFinite, "non-finite", "reject", "what to do about NaN and infinities: reject, drop or neutralize")
	flags.StringVar(&asked.transport, "transport", "auto", "auto, unary, stream or shared_memory")
	flags.BoolVar(&asked.asJSON, "json", false, "print JSON")
	_ = command.RegisterFlagCompletionFunc("method", func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return connection.methodNames(command), cobra.ShellCompDirectiveNoFileComp
	})
	_ = command.RegisterFlagCompletionFunc("dialect", cobra.FixedCompletions([]string{"verl", "trl", "skyrl", "openrlhf"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

func (c *correction) correct(command *cobra.Command, client *counterweight.Client, path string) error {
	method, err := c.readMethod()
	if err != nil {
		return err
	}
	policy, known := policies[c.nonFinite]
	if !known {
		return &usageError{fmt.Errorf("--non-finite must be reject, drop or neutralize; got %q", c.nonFinite)}
	}
	transport, err := counterweight.ParseTransport(c.transport)
	if err != nil {
		return &usageError{err}
	}
	if c.output != "" {
		if err := batchfile.Check(c.output); err != nil {
			return &usageError{err}
		}
	}
	batch, err := batchfile.Read(path)
	if err != nil {
		return err
	}
	options := []counterweight.Option{counterweight.NonFinite(policy), counterweight.Via(transport)}
	if c.run != "" {
		options = append(options, counterweight.Run(c.run))
	}
	if command.Flags().Changed("policy-version") {
		options = append(options, counterweight.PolicyVersion(c.version))
	} else {
		batch.PolicyVersions, batch.VersionSpans = nil, nil
	}
	if c.dialect == "" {
		batch.GroupIDs = nil // no named method reads them
	}
	result, err := client.Correct(command.Context(), batch, method, options...)
	if err != nil {
		return err
	}
	if c.output != "" {
		if err := batchfile.Write(c.output, batch, result); err != nil {
			return err
		}
	}
	if c.asJSON {
		return printResultJSON(command.OutOrStdout(), result)
	}
	return printResult(command.OutOrStdout(), result)
}

func (c *correction) readMethod() (counterweight.Method, error) {
	if (c.method == "") == (c.dialect == "") {
		return nil, &usageError{errors.New("needs either --method or --dialect")}
	}
	if c.dialect == "" {
		parameters := counterweight.Parameters{}
		for _, text := range c.parameters {
			name, number, found := strings.Cut(text, "=")
			value, err := strconv.ParseFloat(number, 64)
			if !found || err != nil {
				return nil, &usageError{fmt.Errorf("--parameter must be NAME=NUMBER; got %q", text)}
			}
			parameters[name] = value
		}
		return counterweight.Preset(c.method, parameters), nil
	}
	var block []byte
	if c.block != "" {
		var err error
		if block, err = os.ReadFile(c.block); err != nil {
			return nil, err
		}
	}
	return counterweight.DialectYAML(c.dialect, block, counterweight.Release(c.release))
}

func printResult(output io.Writer, result *counterweight.Result) error {
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	kept := 0
	for _, keep := range result.KeepMask {
		kept += int(keep)
	}
	fmt.Fprintf(table, "request\t%s, computed by %s in %v\n", result.RequestID, result.Backend, result.Timing.Compute)
	fmt.Fprintf(table, "kept\t%d of %d positions\n", kept, len(result.KeepMask))
	if result.HasLoss {
		fmt.Fprintf(table, "loss\t%g\n", result.Loss)
	}
	for _, name := range slices.Sorted(maps.Keys(result.Metrics)) {
		fmt.Fprintf(table, "%s\t%.6g\n", name, result.Metrics[name])
	}
	for _, rule := range result.Rules {
		fmt.Fprintf(table, "rule %s\tdropped %d tokens in %d sequences\n", rule.Name, rule.DroppedTokens, rule.DroppedSequences)
	}
	if staleness := result.Staleness; staleness != nil {
		fmt.Fprintf(table, "staleness\tmean %.6g, largest %d; %d tokens of unknown versions\n", staleness.Mean, staleness.Max, staleness.UnknownTokens)
		for _, bucket := range staleness.Buckets {
			if bucket.Tokens > 0 {
				fmt.Fprintf(table, "staleness %s\t%d tokens, kl %.6g, k3 %.6g\n", bucket.Label(), bucket.Tokens, bucket.KL, bucket.K3)
			}
		}
	}
	for _, warning := range result.Warnings {
		fmt.Fprintf(table, "warning\t%s\n", warning)
	}
	return table.Flush()
}

// printResultJSON prints everything but the arrays. JSON has no NaN: such metrics are null.
func printResultJSON(output io.Writer, result *counterweight.Result) error {
	finite := func(value float64) any {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil
		}
		return value
	}
	metrics := map[string]any{}
	for name, value := range result.Metrics {
		metrics[name] = finite(value)
	}
	fields := map[string]any{
		"request_id": result.RequestID, "backend": result.Backend, "numerics_version": result.NumericsVersion,
		"metrics": metrics, "non_finite_tokens": result.NonFiniteTokens, "warnings": result.Warnings, "rules": result.Rules,
	}
	if result.HasLoss {
		fields["loss"] = finite(result.Loss)
	}
	if staleness := result.Staleness; staleness != nil {
		buckets := map[string]any{}
		for _, bucket := range staleness.Buckets {
			buckets[bucket.Label()] = map[string]any{"tokens": bucket.Tokens, "kl": finite(bucket.KL), "k3": finite(bucket.K3)}
		}
		fields["staleness"] = map[string]any{
			"mean": finite(staleness.Mean), "max": staleness.Max, "unknown_tokens": staleness.UnknownTokens, "buckets": buckets,
		}
	}
	encoder := json.NewEncoder(output)
	encoder.SetIndent("", "  ")
	return encoder.Encode(fields)
}
