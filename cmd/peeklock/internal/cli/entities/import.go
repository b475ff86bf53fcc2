package entities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/admin/emulator"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/quantity"
	"github.com/peeklock/peeklock/fsm"
)

// importTimeMax is how long import may take after a member has answered: enough for tens of thousands of entities.
const importTimeMax = 10 * time.Minute

// importVerb returns the command import. fromAzure reads the namespace of a connection string.
func importVerb(fromAzure func(i command.Invocation, connection string, dryRun bool) error) command.Verb {
	var wait time.Duration
	var connection string
	var dryRun bool
	return command.Verb{
		Use: "import FILE|--from-azure CONNECTION-STRING", Short: "Create the entities of a Config.json, or of a Service Bus namespace",
		Long: `Create the queues, topics, subscriptions and rules that a Config.json of the Service Bus emulator lists. The first namespace of
the file becomes the default namespace, whatever its name; each further one is created under its name, with a key that has all
rights. Entities that exist get the settings of the file; nothing is deleted, except the rule $Default where the file lists
other rules. The command may be repeated, and then changes nothing.

The exit code is 1 when something could not be created or changed as the file says; the rest is done. An operator key is
needed.

With --from-azure, the command does the same as "peeklock apply --from-azure": it takes the entities, rules and keys of a Service
Bus namespace, into the namespace that --namespace names.`,
		Example: `  peeklock import Config.json
  peeklock import --from-azure - --dry-run < connection-string.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if connection != "" {
				return cli.ArgCount(0, 0)(cmd, args)
			}
			return cli.ArgCount(1, 1)(cmd, args)
		},
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&connection, "from-azure", "", "instead of a file, take the Service Bus namespace of this connection string; - reads it from standard input, so that other users of this machine do not see it")
			cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
			quantity.DurationVar(cmd.Flags(), &wait, "wait", 0, "how long to repeat the first request while no member answers")
		},
		Run: func(i command.Invocation) error {
			switch {
			case connection != "":
				return fromAzure(i, connection, dryRun)
			case dryRun:
				would, err := wouldImport(i)
				if err != nil {
					return err
				}
				return would.Print(i.Out)
			}
			return importConfig(i, wait)
		},
	}
}

// imported is the answer of import.
type imported struct {
	File string `json:"file"`
	emulator.Report
	Warnings []string `json:"warnings,omitempty"`
}

func importConfig(i command.Invocation, wait time.Duration) error {
	path := i.Args[0]
	file, err := emulator.Read(path)
	if err != nil {
		return cli.Usage(err)
	}
	if err := waitForMember(i.Ctx, i.Client, wait); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(i.Ctx, importTimeMax)
	defer cancel()
	report, err := file.Apply(ctx, remoteControl{i.Client})
	if err != nil {
		return cli.Unknown(fmt.Errorf("create what %s lists: a part may have been done, and the command may be repeated: %w", path, err))
	}
	if err := printImported(i.Out, imported{path, report, file.Warnings}); err != nil {
		return err
	}
	if n := len(report.Problems); n > 0 {
		return fmt.Errorf("not everything is as in %s: %d problems", path, n)
	}
	return nil
}

func printImported(o *output.Output, answer imported) error {
	if !o.IsTable() {
		return o.Data(answer)
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{"warning", answer.Warnings}, {"not as in the file", answer.Problems}} {
		for _, line := range list.lines {
			if err := o.Note("%s: %s", list.title, output.Printable(line, output.FieldCharactersMax)); err != nil {
				return err
			}
		}
	}
	return o.Note("%s: %d created, %d updated, %d unchanged", answer.File, answer.Created, answer.Updated, answer.Unchanged)
}

// waitForMember returns nil as soon as a member answers that the client may administer the cluster. While none answers, or
// the cluster starts, it tries again for the given time.
func waitForMember(ctx context.Context, c *client.Client, wait time.Duration) error {
	for began := time.Now(); ; cli.Sleep(ctx, client.RetryInterval) {
		err := c.Call(ctx, http.MethodGet, namespacePath(fsm.DefaultNamespaceName), nil, nil)
		if !errors.Is(err, client.ErrNoMember) && !client.IsBusy(err) || time.Since(began) > wait || ctx.Err() != nil {
			return err
		}
	}
}

// wouldImport says what a file would create and update.
func wouldImport(i command.Invocation) (command.Would, error) {
	file, err := emulator.Read(i.Args[0])
	if err != nil {
		return command.Would{}, cli.Usage(err)
	}
	ctx, cancel := context.WithTimeout(i.Ctx, importTimeMax)
	defer cancel()
	report, err := file.Apply(ctx, dryControl{remoteControl{i.Client}, new(sync.Map)})
	if err != nil {
		return command.Would{}, err
	}
	if n := len(report.Problems); n > 0 {
		return command.Would{}, fmt.Errorf("not everything would be as in %s: %s", i.Args[0], strings.Join(report.Problems, "; "))
	}
	return command.Wouldf("create %d and update %d entities of %s; %d are as listed", report.Created, report.Updated, i.Args[0], report.Unchanged)
}
