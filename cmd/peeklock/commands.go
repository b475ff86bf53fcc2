package main

import (
	"context"

	"github.com/spf13/cobra"
)

// newRoot builds the command tree. A tree serves one run: its flags hold the values.
func newRoot(p process) *cobra.Command {
	root, c := newClientRoot(p)
	root.AddCommand(newDev(p), newServe(p), newConfig(p), newBench(c))
	// cobra adds help and completion. Added here, they refuse wrong arguments as usage errors.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(p.args...)
	return root
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, p process) int { return execute(ctx, p, newRoot(p)) } //nolint:contextcheck // commands get ctx from ExecuteContext
