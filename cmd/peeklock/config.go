package main

import (
	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// newConfig returns the command that prints the settings.
func newConfig(p cli.Process) *cobra.Command {
	show := &cobra.Command{
		Use: "print", Short: "Print all settings of serve with their values and origins", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			form, _ := cmd.Flags().GetString("output")
			out, err := output.NewOutput(p.Out, form)
			if err != nil {
				return err
			}
			s, err := config.Load(p.Env, cmd.Flags())
			if err != nil {
				return cli.Usage(err)
			}
			list := s.List()
			rows := make([][]any, len(list))
			for i, l := range list {
				rows[i] = []any{l.Name, l.Value, l.Origin}
			}
			return out.Rows(list, []any{"setting", "value", "from"}, rows)
		},
	}
	config.AddFlags(show.Flags())
	return cli.Group("config", "Print the configuration of serve", show)
}
