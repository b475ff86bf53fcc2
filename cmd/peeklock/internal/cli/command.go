package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"
)

// noun is a kind of object that commands act on; it becomes the command "peeklock NAME", with a subcommand for
// each verb.
type noun struct {
	name, short string
	long        string // "": short
	verbs       []verb
}

// verb is one command of a noun.
type verb struct {
	use     string // name and arguments
	short   string
	long    string // "": short
	example string
	aliases []string
	args    cobra.PositionalArgs // nil: no arguments
	// complete offers arguments to the shell; nil: no completion.
	complete cobra.CompletionFunc
	flags    func(cmd *cobra.Command) // adds flags whose values run reads; nil: no flags
	run      func(i invocation) error
}

// invocation is one execution of a command.
type invocation struct {
	ctx  context.Context //nolint:containedctx // it lives as long as the command
	out  *Output
	args []string
	// changed reports whether a flag was given.
	changed func(flag string) bool
}

// command builds the command of a verb.
func (c *Client) command(v verb) *cobra.Command {
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example, Aliases: v.aliases,
		Args: v.args, ValidArgsFunction: v.complete,
	}
	if v.args == nil {
		cmd.Args = NoArgs
	}
	if v.flags != nil {
		v.flags(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out, err := c.Output()
		if err != nil {
			return err
		}
		return v.run(invocation{ctx: cmd.Context(), out: out, args: args, changed: cmd.Flags().Changed})
	}
	return cmd
}

// commands builds the commands of all nouns.
func (c *Client) commands(nouns ...noun) []*cobra.Command {
	all := make([]*cobra.Command, len(nouns))
	for i, n := range nouns {
		all[i] = Group(n.name, n.short)
		all[i].Long = n.long
		for _, v := range n.verbs {
			all[i].AddCommand(c.command(v))
		}
	}
	return all
}

// getVerb completes a verb that prints the response of the control API to a GET of path.
func getVerb[T any](c *Client, v verb, path func(args []string) string) verb {
	v.run = func(i invocation) error {
		var value T
		if err := c.Call(i.ctx, http.MethodGet, path(i.args), nil, &value); err != nil {
			return err
		}
		return i.out.fields(value)
	}
	return v
}

// deleteVerb completes a verb that deletes the object at path; name is its name in the answer, done the line of
// the table output.
func deleteVerb(c *Client, v verb, path, name, done func(args []string) string) verb {
	v.run = func(i invocation) error {
		if err := c.Call(i.ctx, http.MethodDelete, path(i.args), nil, nil); err != nil {
			return err
		}
		if i.out.IsTable() {
			return i.out.Note("%s", done(i.args))
		}
		return i.out.Data(deleted{Name: name(i.args), Deleted: true})
	}
	return v
}

// deleted is the answer of commands that delete something.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// listVerb completes a verb that prints a list, with one table row for each element.
func listVerb[T any](v verb, fetch func(i invocation) ([]T, error), header []any, row func(*T) []any) verb {
	v.run = func(i invocation) error {
		list, err := fetch(i)
		if err != nil {
			return err
		}
		rows := make([][]any, len(list))
		for at := range list {
			rows[at] = row(&list[at])
		}
		return i.out.Rows(list, header, rows)
	}
	return v
}

// firstArg returns the first argument.
func firstArg(args []string) string { return args[0] }

// Group returns a command that only has subcommands and refuses verbs that it does not know.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(verbs...)
	return cmd
}

// argCount requires low to high arguments; high < 0: low or more.
func argCount(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || high >= 0 && len(args) > high {
			return Usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		return nil
	}
}
