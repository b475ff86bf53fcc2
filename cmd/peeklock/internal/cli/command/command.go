package command

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// Noun is a kind of object that commands act on; it becomes the command "peeklock NAME", with a subcommand for
// each verb.
type Noun struct {
	Name, Short string // name "": the verbs are commands of their own
	Long        string // "": short
	Verbs       []Verb
	Hidden      bool // for developers; not in the help
}

// Verb is one command of a noun.
type Verb struct {
	Use          string // name and arguments
	Short        string
	Long         string // "": short
	Example      string
	Aliases      []string
	Args         cobra.PositionalArgs     // nil: no arguments
	Complete     Completer                // offers arguments to the shell; nil: no completion
	CompleteFlag map[string]Completer     // offers values of flags to the shell
	Flags        func(cmd *cobra.Command) // adds flags whose values run reads; nil: no flags
	Run          func(i Invocation) error
	// Would says what Run would do, after it has asked members; the command then has --dry-run. Whatever a command does with
	// --dry-run, its client refuses to change anything. nil: the command changes nothing, or Run has the flag itself.
	Would func(i Invocation) (Would, error)
}

// Invocation is one execution of a command.
type Invocation struct {
	Ctx    context.Context //nolint:containedctx // it lives as long as the command
	Client *client.Client
	Out    *output.Output
	Args   []string
	// Changed reports whether a flag was given.
	Changed func(flag string) bool
}

// newCommand builds the command of a verb.
func newCommand(c *client.Client, v Verb) *cobra.Command {
	cmd := &cobra.Command{Use: v.Use, Short: v.Short, Long: v.Long, Example: v.Example, Aliases: v.Aliases, Args: v.Args}
	if v.Args == nil {
		cmd.Args = cli.NoArgs
	}
	if v.Complete != nil {
		cmd.ValidArgsFunction = v.Complete.cobraFunc(c)
	}
	if v.Flags != nil {
		v.Flags(cmd)
	}
	if v.Would != nil {
		cmd.Flags().Bool(dryRunFlag, false, "only say what would be done")
	}
	for flag, complete := range v.CompleteFlag {
		if cmd.Flags().Lookup(flag) != nil {
			registerFlagCompletion(cmd, c, flag, complete)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out, err := c.Output()
		if err != nil {
			return err
		}
		i := Invocation{Ctx: cmd.Context(), Client: c, Out: out, Args: args, Changed: cmd.Flags().Changed}
		if isDry, err := cmd.Flags().GetBool(dryRunFlag); err == nil && isDry {
			i.Client = c.ReadOnly()
			if v.Would != nil {
				return v.printWould(i)
			}
		}
		return v.Run(i)
	}
	return cmd
}

// newGroup builds the command of a noun.
func newGroup(c *client.Client, n Noun) *cobra.Command {
	group := cli.Group(n.Name, n.Short)
	group.Long, group.Hidden = n.Long, n.Hidden
	for _, v := range n.Verbs {
		group.AddCommand(newCommand(c, v))
	}
	return group
}

// GetVerb completes a verb that prints the response of the control API to a GET of path.
func GetVerb[T any](v Verb, path func(args []string) string) Verb {
	v.Run = func(i Invocation) error {
		var value T
		if err := i.Client.Call(i.Ctx, http.MethodGet, path(i.Args), nil, &value); err != nil {
			return err
		}
		return i.Out.Fields(value)
	}
	return v
}

// DeleteVerb completes a verb that deletes the object at path; name is its name in the answer, done the line of
// the table output.
func DeleteVerb(v Verb, path, name, done func(args []string) string) Verb {
	v.Run = func(i Invocation) error {
		if err := i.Client.Call(i.Ctx, http.MethodDelete, path(i.Args), nil, nil); err != nil {
			return err
		}
		if i.Out.IsTable() {
			return i.Out.Note("%s", done(i.Args))
		}
		return i.Out.Data(deleted{Name: name(i.Args), Deleted: true})
	}
	return v
}

// Confirmed completes a verb that destroys something: it runs after the user has confirmed what it does. what returns that,
// as [client.Client.Confirm] takes it.
func Confirmed(v Verb, what func(args []string) string) Verb {
	yes, flags, run := false, v.Flags, v.Run
	v.Flags = func(cmd *cobra.Command) {
		if flags != nil {
			flags(cmd)
		}
		cmd.Flags().BoolVar(&yes, "yes", false, "confirm, instead of typing the name; needed without a terminal")
	}
	v.Run = func(i Invocation) error {
		if err := i.Client.Confirm(i.Ctx, yes, i.Args[0], what(i.Args)); err != nil {
			return err
		}
		return run(i)
	}
	return v
}

// deleted is the answer of commands that delete something.
type deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// ListVerb completes a verb that prints a list, with one table row for each element.
func ListVerb[T any](v Verb, fetch func(i Invocation) ([]T, error), header []any, row func(*T) []any) Verb {
	v.Run = func(i Invocation) error {
		list, err := fetch(i)
		if err != nil {
			return err
		}
		rows := make([][]any, len(list))
		for at := range list {
			rows[at] = row(&list[at])
		}
		return i.Out.Rows(list, header, rows)
	}
	return v
}

// FirstArg returns the first argument.
func FirstArg(args []string) string { return args[0] }

// WouldIfFound asks for the object at path, and then says what would be done.
func WouldIfFound(path, would func(args []string) string) func(Invocation) (Would, error) {
	return func(i Invocation) (Would, error) {
		if err := i.Client.Call(i.Ctx, http.MethodGet, path(i.Args), nil, nil); err != nil {
			return Would{}, err
		}
		return Wouldf("%s", would(i.Args))
	}
}

// dryRunFlag is the flag of commands that change something.
const dryRunFlag = "dry-run"

// printWould runs a command that has Would with --dry-run.
func (v *Verb) printWould(i Invocation) error {
	would, err := v.Would(i)
	if err != nil {
		return err
	}
	return would.Print(i.Out)
}
