package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
)

// NewRoot builds the root command with the commands of nouns, and returns their client.
func NewRoot(p cli.Process, nouns ...Noun) (*cobra.Command, *client.Client) {
	root := &cobra.Command{
		Use:   "peeklock",
		Short: "A replicated message broker for Azure Service Bus clients",
		Long: `Peeklock is a replicated message broker for unmodified Azure Service Bus clients. Start with "peeklock dev", which runs
three members in one process.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cli.NoArgs,
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetFlagErrorFunc(cli.FlagError)
	root.Version = cli.Version()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(strings.NewReplacer("FlagUsages |", fmt.Sprintf("FlagUsagesWrapped %d |", cli.HelpColumns)).Replace(root.UsageTemplate()))

	c := &client.Client{Process: p}
	c.Flags(root.PersistentFlags())
	for _, n := range nouns {
		if n.Name == "" { // its verbs are commands of their own
			for _, v := range n.Verbs {
				root.AddCommand(newCommand(c, v))
			}
			continue
		}
		root.AddCommand(newGroup(c, n))
	}
	registerFlagCompletion(root, c, "namespace", CompleteNamespace)
	return root, c
}
