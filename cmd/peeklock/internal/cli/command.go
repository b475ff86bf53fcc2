package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"
)

// noun is a kind of object that commands act on; it becomes the command "peeklock NAME", with a subcommand for
// each verb.
type noun struct {
	name, short string // name "": the verbs are commands of their own
	long        string // "": short
	verbs       []verb
	hidden      bool // for developers; not in the help
}

// verb is one command of a noun.
type verb struct {
	use          string // name and arguments
	short        string
	long         string // "": short
	example      string
	aliases      []string
	args         cobra.PositionalArgs     // nil: no arguments
	complete     completer                // offers arguments to the shell; nil: no completion
	completeFlag map[string]completer     // offers values of flags to the shell
	flags        func(cmd *cobra.Command) // adds flags whose values run reads; nil: no flags
	run          func(i invocation) error
}

// invocation is one execution of a command.
type invocation struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the command
	client *Client
	out    *Output
	args   []string
	// changed reports whether a flag was given.
	changed func(flag string) bool
}

// newCommand builds the command of a verb.
func newCommand(c *Client, v verb) *cobra.Command {
	cmd := &cobra.Command{Use: v.use, Short: v.short, Long: v.long, Example: v.example, Aliases: v.aliases, Args: v.args}
	if v.args == nil {
		cmd.Args = NoArgs
	}
	if v.complete != nil {
		cmd.ValidArgsFunction = v.complete.cobraFunc(c)
	}
	if v.flags != nil {
		v.flags(cmd)
	}
	for flag, complete := range v.completeFlag {
		if cmd.Flags().Lookup(flag) != nil {
			registerFlagCompletion(cmd, c, flag, complete)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out, err := c.Output()
		if err != nil {
			return err
		}
		return v.run(invocation{ctx: cmd.Context(), client: c, out: out, args: args, changed: cmd.Flags().Changed})
	}
	return cmd
}

// newGroup builds the command of a noun.
func newGroup(c *Client, n noun) *cobra.Command {
	group := Group(n.name, n.short)
	group.Long, group.Hidden = n.long, n.hidden
	for _, v := range n.verbs {
		group.AddCommand(newCommand(c, v))
	}
	return group
}

// getVerb completes a verb that prints the response of the control API to a GET of path.
func getVerb[T any](v verb, path func(args []string) string) verb {
	v.run = func(i invocation) error {
		var value T
		if err := i.client.Call(i.ctx, http.MethodGet, path(i.args), nil, &value); err != nil {
			return err
		}
		return i.out.fields(value)
	}
	return v
}

// deleteVerb completes a verb that deletes the object at path; name is its name in the answer, done the line of
// the table output.
func deleteVerb(v verb, path, name, done func(args []string) string) verb {
	v.run = func(i invocation) error {
		if err := i.client.Call(i.ctx, http.MethodDelete, path(i.args), nil, nil); err != nil {
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
