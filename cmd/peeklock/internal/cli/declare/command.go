package declare

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/contexts"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/kubernetes"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// options are the flags of apply and diff.
type options struct {
	source
	parameters         []string
	fromAzure          string
	prune, dryRun, yes bool
	wait               time.Duration
	schema             bool
	secret, account    string
}

// fileHelp describes the file.
const fileHelp = `The file is YAML or JSON: queues, topics with their subscriptions and rules, and keys, with the settings of the control API by
their names there ("peeklock export" writes one, "peeklock apply --schema" prints its JSON schema for editors). It may also be a
Config.json of the Service Bus emulator, or an ARM template with Microsoft.ServiceBus resources, as "bicep build" writes it; its
content tells which. What the file does not name stays as it is: settings, keys, and without --prune also entities and rules. A
subscription with rules in the file loses the rule $Default unless the file names it.`

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
  peeklock apply -f main.json --parameter queueName=orders --namespace shop
  peeklock apply --from-azure - --dry-run < connection-string.txt`,
			Flags: func(cmd *cobra.Command) {
				forApply.flags(cmd)
				cmd.Flags().BoolVar(&forApply.schema, "schema", false, "print the JSON schema of the file, and do nothing else")
				cmd.Flags().StringVar(&forApply.secret, "kubernetes-secret", "", "in a pod: write the connection strings of the declared keys to this Secret, which has to exist, and whose data they replace: NAME for a key of the namespace, ENTITY.NAME for one of a queue or topic, with . for each /")
				cmd.Flags().StringVar(&forApply.account, "account", kubernetes.Account, "directory of the service account: token, ca.crt, namespace")
				_ = cmd.Flags().MarkHidden("account") // for tests
				cmd.Flags().StringVar(&forApply.fromAzure, "from-azure", "", "instead of a file, take the entities of the Service Bus namespace of this connection string, with their keys; - reads it from standard input, so that other users of this machine do not see it")
				cmd.Flags().BoolVar(&forApply.dryRun, "dry-run", false, "print the changes only")
				cmd.Flags().BoolVar(&forApply.yes, "yes", false, "confirm --prune, which deletes entities with their messages")
			},
			Run: func(i command.Invocation) error { return apply(i, &forApply) },
		},
		{
			Use: "diff", Short: "Compare the entities of the namespace with a file",
			Long:    "Print how the entities of the namespace differ from a file. The exit code is 4 if they do, and 0 if not.\n\n" + fileHelp,
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
	cmd.Flags().StringVar(&o.of, "file-namespace", "", "of a Config.json or ARM template with several namespaces, the one to read")
	cmd.Flags().StringArrayVar(&o.parameters, "parameter", nil, "NAME=VALUE of a parameter of an ARM template; may be repeated")
	cmd.Flags().BoolVar(&o.prune, "prune", false, "also delete entities, and rules of declared subscriptions, that the file does not name")
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "how long to repeat the first request while no member answers")
}

// read reads what is declared, and prints what it ignores.
func (o *options) read(i command.Invocation) (*Document, error) {
	var err error
	switch {
	case (o.file == "") == (o.fromAzure == ""):
		return nil, cli.Usagef("give -f FILE, or -f - for standard input (apply: or --from-azure)")
	case o.fromAzure != "":
		from, err := contexts.ReadConnectionString(o.fromAzure, i.Client.In)
		if err != nil {
			return nil, err
		}
		return readService(i.Ctx, from)
	}
	if o.source.parameters, err = parameterFlag(o.parameters); err != nil {
		return nil, err
	}
	want, warnings, err := o.source.read(i.Client.In)
	for _, w := range warnings {
		_, _ = fmt.Fprintf(i.Client.Err, "warning: %s\n", output.Printable(w, output.FieldCharactersMax))
	}
	return want, err
}

// changes compares the namespace with what is declared, and prints the plan.
func (o *options) changes(i command.Invocation, want *Document) ([]Change, error) {
	have, err := readState(i.Ctx, i.Client)
	for began := time.Now(); (errors.Is(err, client.ErrNoMember) || client.IsBusy(err)) && time.Since(began) < o.wait && i.Ctx.Err() == nil; {
		cli.Sleep(i.Ctx, client.RetryInterval)
		have, err = readState(i.Ctx, i.Client)
	}
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
	want, err := o.read(i)
	if err != nil {
		return err
	}
	list, err := o.changes(i, want)
	switch {
	case err != nil:
	case !i.Out.IsTable():
		err = i.Out.Data(Answer{Changes: slices.Concat([]Change{}, list)})
	case len(list) > 0:
		err = i.Out.Note("the namespace differs from %s: %d changes (peeklock apply makes them)", o.file, len(list))
	}
	if err == nil && len(list) > 0 {
		err = cli.Exit(cli.ExitDiffers)
	}
	return err
}

func apply(i command.Invocation, o *options) error {
	if o.schema {
		text, err := schemaText()
		if err == nil {
			_, err = i.Client.Out.Write(text)
		}
		return err //nolint:wrapcheck // of standard output
	}
	want, err := o.read(i)
	if err != nil {
		return err
	}
	if _, err := want.secretKeys(); err != nil && o.secret != "" {
		return err
	}
	list, err := o.changes(i, want)
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
	if err != nil {
		return fmt.Errorf("%d of %d changes made, then: %w", applied, len(list), err)
	}
	if o.secret != "" && !o.dryRun {
		if err := writeSecret(i, o, want); err != nil {
			return err
		}
	}
	switch {
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
