package cli

import "github.com/spf13/cobra"

// NewRoot builds the root command with the commands of nouns, and returns their client.
func NewRoot(p Process, nouns ...noun) (*cobra.Command, *Client) {
	root := &cobra.Command{
		Use:   "peeklock",
		Short: "A replicated message broker for Azure Service Bus clients",
		Long: `Peeklock is a replicated message broker for unmodified Azure Service Bus clients. Start with "peeklock dev", which runs
three members in one process.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          NoArgs,
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })

	c := &Client{Process: p}
	c.flags(root)
	for _, n := range nouns {
		if n.name == "" { // its verbs are commands of their own
			for _, v := range n.verbs {
				root.AddCommand(newCommand(c, v))
			}
			continue
		}
		root.AddCommand(newGroup(c, n))
	}
	registerFlagCompletion(root, c, "namespace", completeNamespace)
	return root, c
}
