package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/cmd/metrics"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/document"
	"github.com/peeklock/peeklock/test/kit"
)

const docs = "../../docs/"

// TestDocsListEveryMetric checks that the reference lists every metric that a member exports.
func TestDocsListEveryMetric(t *testing.T) {
	t.Parallel()
	document.Section(t, docs+"metrics.md", "metrics", metrics.Table())
}

// TestDocsCLI checks that the reference has the help of every command.
func TestDocsCLI(t *testing.T) {
	t.Parallel()
	root := newRoot(cli.Process{})
	var index, text strings.Builder
	writeCommands(&index, &text, root)
	intro := `# Command line

The program ` + "`peeklock`" + ` runs members and manages clusters. This page shows the help of every command; it is generated from the
program itself (` + "`make docs`" + `).

Commands other than ` + "`dev`, `emulator`, `serve`, `healthcheck`, `config`, `init`, `restore`, `raft-log`, `version` and `completion`" + ` are clients of the control API; ` + "`bench`" + `
and most ` + "`message`" + ` commands also use AMQP. They find the cluster by the first of these: ` + "`--server`, `--context`, `PEEKLOCK_SERVER`" + `, the context that
` + "`peeklock context use`" + ` chose, the control socket of ` + "`PEEKLOCK_CONTROL_SOCKET`" + ` or in ` + "`PEEKLOCK_DIR`" + ` (as in the container of a member), that of the member
which systemd runs on this machine, ` + "`http://127.0.0.1:5300`, which is `dev`" + `. A server is ` + "`http://host:5300`, `https://host:5300` or `unix:///data/peeklock.sock`" + `. An error says
what named the server. The secret comes from ` + "`--key` or `--key-file`" + `, else from the context if it named the server, else from ` + "`PEEKLOCK_KEY`" + `.
` + "`--output json`" + ` makes the output fit for scripts: one array for a list, one object per line for what arrives over time, and errors on standard error as
an object, too.

` + "`--dry-run`" + ` of a command that changes something says what it would do and changes nothing: it only asks members. Limits of a namespace are checked when the change is made.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused: nothing was done |
| 2 | the command line or the configuration is wrong |
| 3 | unknown: the command may or may not have been executed |
| 4 | ` + "`diff`" + `: the namespace differs from the file |
| 130 | interrupted (Ctrl-C); ` + "`message receive` and `bench`" + ` end regularly instead |

`
	document.File(t, docs+"cli.md", intro+index.String()+"\n"+strings.TrimRight(text.String(), "\n")+"\n")
}

// TestHelpOfFlagsHasNoBackquotes: pflag takes a text in backquotes for the name of the value, in every line of the help.
func TestHelpOfFlagsHasNoBackquotes(t *testing.T) {
	t.Parallel()
	commands := []*cobra.Command{newRoot(cli.Process{})}
	for len(commands) > 0 {
		cmd := commands[0]
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		commands = append(commands[1:], cmd.Commands()...)
	}
}

// TestHelpFitsATerminal checks the width of the help of every command.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	commands := []*cobra.Command{newRoot(cli.Process{})}
	for len(commands) > 0 {
		cmd := commands[0]
		commands = append(commands[1:], cmd.Commands()...)
		var help strings.Builder
		cmd.SetOut(&help)
		kit.OK(t, cmd.Help())
		isExample := false
		for line := range strings.Lines(help.String()) {
			isExample = isExample && line != "\n" || line == "Examples:\n" // a command line that is broken cannot be copied
			if len(strings.TrimRight(line, "\n")) > cli.HelpColumns && !isExample && !strings.Contains(line, "  peeklock "+cmd.Name()) {
				t.Errorf("%s: %q has %d columns", cmd.CommandPath(), line, len(line)-1)
			}
		}
	}
}

// writeCommands writes a command and its subcommands, in the order of the help: a line of the index for each command with
// links to its subcommands, and the help of all of them.
func writeCommands(index, text *strings.Builder, cmd *cobra.Command) {
	writeCommand(text, cmd)
	var verbs []string
	for _, sub := range cmd.Commands() {
		switch {
		case sub.Hidden || sub.Name() == "help" || cmd.Name() == "completion":
		case cmd.HasParent():
			verbs = append(verbs, link(sub.Name(), sub))
			writeCommand(text, sub)
		default:
			writeCommands(index, text, sub)
		}
	}
	if cmd.HasParent() {
		fmt.Fprintf(index, "- %s: %s\n", link(cmd.CommandPath(), cmd), strings.Join(append([]string{cmd.Short}, verbs...), " · "))
	}
}

// link returns a link to the help of a command.
func link(name string, cmd *cobra.Command) string {
	return fmt.Sprintf("[%s](#%s)", name, strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
}

// writeCommand writes the help of one command, with its own flags; flags of all commands are in the help of the
// root, and --help is left out.
func writeCommand(text *strings.Builder, cmd *cobra.Command) {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(text, "## %s\n\n```text\n%s\n\nUsage:\n  %s\n", cmd.CommandPath(), strings.TrimSpace(long), cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(text, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	flags := cmd.LocalFlags()
	if cmd.HasParent() {
		flags = cmd.NonInheritedFlags()
	}
	flags, shared := split(flags, cmd)
	if usages := flags.FlagUsagesWrapped(cli.HelpColumns); usages != "" && cmd.Runnable() {
		fmt.Fprintf(text, "\nFlags:\n%s", usages)
	}
	if len(shared) > 0 {
		fmt.Fprintf(text, "\nFlags as for create:\n  --%s\n", strings.Join(shared, " --"))
	}
	text.WriteString("```\n\n")
	if cmd.Name() == "serve" {
		text.WriteString("Each setting of [configuration](configuration.md#settings) is a flag of this command.\n\n")
	}
}

// split separates the flags of a command that stand elsewhere: those of serve in the reference of settings, and those of
// an update, whose names it returns, in the help of the create beside it.
func split(flags *pflag.FlagSet, cmd *cobra.Command) (own *pflag.FlagSet, shared []string) {
	own = pflag.NewFlagSet("", pflag.ContinueOnError)
	settings, create := config.Reference(), sibling(cmd, "create")
	flags.VisitAll(func(f *pflag.Flag) {
		switch {
		case cmd.Name() == "serve" && strings.Contains(settings, "`--"+f.Name+"`"):
		case cmd.Name() == "update" && create != nil && sameFlag(f, create.Flags().Lookup(f.Name)):
			shared = append(shared, f.Name)
		default:
			own.AddFlag(f)
		}
	})
	return own, shared
}

// sibling returns the command of that name beside another one, or nil.
func sibling(cmd *cobra.Command, name string) *cobra.Command {
	if cmd.HasParent() {
		for _, c := range cmd.Parent().Commands() {
			if c.Name() == name {
				return c
			}
		}
	}
	return nil
}

// sameFlag says whether the help of two flags is the same.
func sameFlag(a, b *pflag.Flag) bool {
	return b != nil && a.Usage == b.Usage && a.DefValue == b.DefValue
}

// TestDocsListEverySettingOfServe checks that the reference lists every setting of serve.
func TestDocsListEverySettingOfServe(t *testing.T) {
	t.Parallel()
	document.Section(t, docs+"configuration.md", "settings", config.Reference())
}
