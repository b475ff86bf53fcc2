package declare

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// options are the flags of apply and diff.
type options struct {
	file, fromAzure    string
	prune, dryRun, yes bool
}

// fileHelp describes the file.
const fileHelp = `The file is YAML or JSON: queues, topics with their subscriptions and rules, and keys, with the settings of the control API by
their names there ("peeklock export" writes one). What the file does not name stays as it is: settings, keys, and without --prune also
entities and rules. A subscription with rules in the file loses the rule $Default unless the file names it.`

// Nouns returns the commands of declared entities.
func Nouns() []command.Noun {
	var forApply, forDiff options
	return []command.Noun{{Verbs: []command.Verb{
		{
			Use: "apply", Short: "Make the entities of the namespace as a file declares them",
			Long: "Print how the entities of the namespace differ from a file, and change them. The command may be repeated, and then changes nothing.\n\n" + fileHelp,
			Example: `  peeklock apply -f entities.yaml
  peeklock apply -f entities.yaml --dry-run
  peeklock apply -f entities.yaml --prune --yes
  peeklock apply --from-azure - --dry-run < connection-string.txt`,
			Flags: func(cmd *cobra.Command) {
				forApply.flags(cmd)
				cmd.Flags().StringVar(&forApply.fromAzure, "from-azure", "", "instead of a file, take the entities of the Service Bus namespace of this connection string, with their keys; - reads it from standard input, so that other users of this machine do not see it")
				cmd.Flags().BoolVar(&forApply.dryRun, "dry-run", false, "print the changes only")
				cmd.Flags().BoolVar(&forApply.yes, "yes", false, "confirm --prune, which deletes entities with their messages")
			},
			Run: func(i command.Invocation) error { return apply(i, &forApply) },
		},
		{
			Use: "diff", Short: "Compare the entities of the namespace with a file",
			Long:    "Print how the entities of the namespace differ from a file. The exit code is 1 if they do.\n\n" + fileHelp,
			Example: "  peeklock diff -f entities.yaml\n  peeklock diff -f entities.yaml --prune -o json",
			Flags:   forDiff.flags,
			Run:     func(i command.Invocation) error { return diff(i, &forDiff) },
		},
		{
			Use: "export", Short: "Print the entities of the namespace as a file for apply",
			Long:    "Print the queues, topics, subscriptions, rules and keys of the namespace as YAML, with every setting. Secrets of keys are not printed.",
			Example: "  peeklock export > entities.yaml\n  peeklock export --namespace shop -o json", Run: export,
		},
	}}}
}

func (o *options) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.file, "file", "f", "", "file that declares the entities; - is standard input")
	cmd.Flags().BoolVar(&o.prune, "prune", false, "also delete entities, and rules of declared subscriptions, that the file does not name")
}

// changes reads the file and the namespace, and prints the plan.
func (o *options) changes(i command.Invocation) ([]Change, error) {
	var want *Document
	var err error
	switch {
	case (o.file == "") == (o.fromAzure == ""):
		return nil, cli.Usagef("give -f FILE, or -f - for standard input (apply: or --from-azure)")
	case o.fromAzure != "":
		var from contexts.ConnectionString
		if from, err = contexts.ReadConnectionString(o.fromAzure, i.Client.In); err == nil {
			want, err = readService(i.Ctx, from)
		}
	default:
		want, err = readDocument(o.file, i.Client.In)
	}
	if err != nil {
		return nil, err
	}
	have, err := readState(i.Ctx, i.Client)
	if err != nil {
		return nil, err
	}
	list, err := plan(want, have, o.prune)
	if err != nil {
		return nil, err
	}
	for at := range list {
		if err := i.Out.Note("%s", output.Printable(list[at].line(), output.FieldCharactersMax)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func diff(i command.Invocation, o *options) error {
	list, err := o.changes(i)
	if err != nil {
		return err
	}
	if !i.Out.IsTable() {
		err = i.Out.Data(Answer{Changes: slices.Concat([]Change{}, list)})
	}
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("the namespace differs from %s: %d changes (peeklock apply makes them)", o.file, len(list))
	}
	return err
}

func apply(i command.Invocation, o *options) error {
	list, err := o.changes(i)
	if err != nil {
		return err
	}
	if !o.dryRun && !o.yes && slices.ContainsFunc(list, func(c Change) bool { return c.losesMessages() }) {
		return cli.Usagef("entities would be deleted with their messages: add --yes, or look with --dry-run")
	}
	applied := 0
	if !o.dryRun {
		applied, err = perform(i, list)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%d of %d changes made, then: %w", applied, len(list), err)
	case !i.Out.IsTable():
		return i.Out.Data(Answer{slices.Concat([]Change{}, list), applied})
	}
	return i.Out.Note("%d of %d changes made", applied, len(list))
}

// perform makes the changes. One that is refused is tried again after the others: an entity may forward to one that is created
// later.
func perform(i command.Invocation, list []Change) (applied int, err error) {
	for left := list; len(left) > 0; {
		var refused []Change
		var first error
		for at := range left {
			c := &left[at]
			if err := i.Client.Call(i.Ctx, c.method, c.path, c.body, nil); err != nil {
				if cli.IsUnknown(err) || i.Ctx.Err() != nil {
					return applied, err
				}
				if refused = append(refused, *c); first == nil {
					first = fmt.Errorf("%s %s %s: %w", c.Action, c.Kind, c.Name, err)
				}
				continue
			}
			applied++
		}
		if len(refused) == len(left) {
			return applied, first
		}
		left = refused
	}
	return applied, nil
}

func export(i command.Invocation) error {
	have, err := readState(i.Ctx, i.Client)
	if err != nil {
		return err
	}
	if !i.Out.IsTable() {
		return i.Out.Data(have)
	}
	text, err := have.marshal()
	if err != nil {
		return err
	}
	_, err = i.Client.Out.Write(text)
	return err //nolint:wrapcheck // of standard output
}
