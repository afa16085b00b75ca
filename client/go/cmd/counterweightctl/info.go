package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	counterweight "github.com/counterweight/counterweight/client/go"
)

func newInfo(connection *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "info",
		Short: "Print version, backend, limits and features of the server",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return connection.with(func(client *counterweight.Client) error {
				info, err := client.ServerInfo(command.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(command.OutOrStdout(), info)
				}
				return printInfo(command.OutOrStdout(), info)
			})
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func printInfo(output io.Writer, info *counterweight.ServerInfo) error {
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	row := func(name, format string, values ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", values...) }
	row("version", "%s (%s)", info.GetVersion(), info.GetRevision())
	row("numerics version", "%d", info.GetNumericsVersion())
	row("backend", "%s, %d threads, %s", info.GetBackend(), info.GetThreads(), info.GetInstructionSet())
	for _, device := range info.GetDevices() {
		row(fmt.Sprintf("device %d", device.GetIndex()), "%s, %d MiB", device.GetName(), device.GetMemoryBytes()>>20)
	}
	row("features", "%s", strings.Join(info.GetFeatures(), ", "))
	for _, system := range info.GetDialectReleases() {
		var releases []string
		for _, release := range system.GetReleases() {
			releases = append(releases, release.GetVersion())
		}
		row("dialect "+system.GetSystem(), "%s", strings.Join(releases, ", "))
	}
	limits := info.GetLimits().ProtoReflect()
	for i := range limits.Descriptor().Fields().Len() {
		field := limits.Descriptor().Fields().Get(i)
		row(string(field.Name()), "%v", limits.Get(field))
	}
	if socket := info.GetSharedMemorySocket(); socket != "" {
		row("shared memory", "%s", socket)
	}
	return table.Flush()
}

func printJSON(output io.Writer, message proto.Message) error {
	text, err := protojson.MarshalOptions{Multiline: true, UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(output, string(text))
	return err
}

func newMethods(connection *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "methods [NAME]",
		Short: "List the named methods, or tell all about one",
		Args:  cobra.MaximumNArgs(1),
		ValidArgsFunction: func(command *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return connection.methodNames(command), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return connection.with(func(client *counterweight.Client) error {
				methods, err := client.ListMethods(command.Context())
				if err != nil {
					return err
				}
				return printMethods(command.OutOrStdout(), methods, arguments, asJSON)
			})
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object for each method")
	return command
}

func printMethods(output io.Writer, methods []*counterweight.MethodInfo, names []string, asJSON bool) error {
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	for _, method := range methods {
		switch {
		case len(names) == 1 && method.GetName() != names[0]:
			continue
		case asJSON:
			if err := printJSON(output, method); err != nil {
				return err
			}
		case len(names) == 1:
			return printMethod(output, method)
		default:
			fmt.Fprintf(table, "%s\t%s\t%s\n", method.GetName(), method.GetOrigin(), method.GetSummary())
		}
		if len(names) == 1 {
			return nil
		}
	}
	if len(names) == 1 {
		return fmt.Errorf("there is no method %q; counterweightctl methods lists them", names[0])
	}
	return table.Flush()
}

func printMethod(output io.Writer, method *counterweight.MethodInfo) error {
	fmt.Fprintf(output, "%s (%s %s)\n\n%s\nWhen: %s\nFormula: %s\nSource: %s\n", method.GetName(), method.GetOrigin(),
		method.GetOriginName(), method.GetSummary(), method.GetWhenToUse(), method.GetFormula(), method.GetReference())
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', 0)
	for _, parameter := range method.GetParameters() {
		fmt.Fprintf(table, "  %s\t%v %s\t%s\n", parameter.GetName(), parameter.GetDefaultValue(), parameter.GetUnit(), parameter.GetDescription())
	}
	for system, block := range method.GetEquivalents() {
		fmt.Fprintf(table, "  as %s\t\t%s\n", system, block)
	}
	return table.Flush()
}

// methodNames are for the shell's completion; without a server there are none.
func (c *connection) methodNames(command *cobra.Command) (names []string) {
	_ = c.with(func(client *counterweight.Client) error {
		methods, err := client.ListMethods(command.Context())
		for _, method := range methods {
			names = append(names, method.GetName()+"\t"+method.GetSummary())
		}
		return err
	})
	return names
}
