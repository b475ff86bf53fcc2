package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/bench"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/backups"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/declare"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/doctor"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/entities"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/install"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/kubernetes"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/messages"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/offline"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/operate"
)

// newRoot builds the command tree. A tree is for one run, because its flags hold the values.
func newRoot(p cli.Process) *cobra.Command {
	diagnosis := []command.Noun{{Verbs: []command.Verb{doctor.Verb()}}}
	root, c := command.NewRoot(p, slices.Concat(diagnosis, entities.Nouns(importFromAzure), messages.Nouns(), declare.Nouns(), operate.Nouns(), backups.Nouns(), kubernetes.Nouns(), offline.Nouns())...)
	root.AddCommand(newDev(p), newEmulator(p), newServe(p), newHealthcheck(p), newConfig(p), install.New(p), bench.New(c))
	// cobra adds help and completion itself. When they are added here, wrong arguments are usage errors.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(p.Args...)
	cli.WrapHelp(root)
	return root
}

// importFromAzure is import --from-azure: it runs apply --from-azure.
func importFromAzure(i command.Invocation, connection string, dryRun bool) error {
	verbs := declare.Nouns()[0].Verbs
	apply := verbs[slices.IndexFunc(verbs, func(v command.Verb) bool { return v.Use == "apply" })]
	flags := new(cobra.Command)
	apply.Flags(flags)
	if err := errors.Join(flags.Flags().Set("from-azure", connection), flags.Flags().Set("dry-run", strconv.FormatBool(dryRun))); err != nil {
		return fmt.Errorf("import as apply: %w", err)
	}
	return apply.Run(i)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, p cli.Process) int { return cli.Execute(ctx, p, newRoot(p)) } //nolint:contextcheck // commands get ctx from ExecuteContext
