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
	r := reference{first: map[string]string{}}
	r.writeCommands(root)
	intro := `# Command line

The program ` + "`peeklock`" + ` runs members and manages clusters. This page is generated from the help of its commands (` + "`make docs`" + `); what several
commands have in common is described at the first of them.

Commands other than ` + "`dev`, `emulator`, `serve`, `healthcheck`, `config`, `init`, `restore`, `raft-log`, `version` and `completion`" + ` are clients of the control API; ` + "`bench`" + `
and most ` + "`message`" + ` commands also use AMQP. They find the cluster by the first of these: ` + "`--server`, `--context`, `PEEKLOCK_SERVER`" + `, the context that
` + "`peeklock context use`" + ` chose, the control socket of ` + "`PEEKLOCK_CONTROL_SOCKET`" + ` or in ` + "`PEEKLOCK_DIR`" + ` (as in the container of a member), that of the member
which systemd runs on this machine, ` + "`http://127.0.0.1:5300`, which is `dev`" + `. A server is ` + "`http://host:5300`, `https://host:5300` or `unix:///data/peeklock.sock`" + `. An error says
what named the server. The secret comes from ` + "`--key` or `--key-file`" + `, else from the context if it named the server, else from ` + "`PEEKLOCK_KEY`" + `.
` + "`--output json`" + ` makes the output fit for scripts: one array for a list, one object per line for what arrives over time, and errors on standard error as
an object, too.

` + "`--dry-run`" + ` of a command that changes something only says what would be done, and asks members only. Limits of a namespace are checked when the change is made.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused: nothing was done |
| 2 | the command line or the configuration is wrong |
| 3 | unknown: the command may or may not have been executed |
| 4 | ` + "`diff`" + `: the namespace differs from the file |
| 130 | interrupted (Ctrl-C); ` + "`message receive` and `bench`" + ` end regularly instead |

`
	document.File(t, docs+"cli.md", intro+r.index.String()+"\n"+strings.TrimRight(r.text.String(), "\n")+"\n")
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

// reference writes the help of all commands. What the help of several commands says alike, it writes once.
type reference struct {
	index, text strings.Builder
	first       map[string]string // a paragraph or a flag → the path of the first command whose help has it
}

// writeCommands writes a command and its subcommands, in the order of the help: a line of the index for each command with
// links to its subcommands, and the help of all of them.
func (r *reference) writeCommands(cmd *cobra.Command) {
	hasText := r.writeCommand(cmd)
	var verbs []string
	for _, sub := range cmd.Commands() {
		switch {
		case sub.Hidden || sub.Name() == "help" || cmd.Name() == "completion":
		case cmd.HasParent():
			verbs = append(verbs, link(sub.Name(), sub))
			r.writeCommand(sub)
		default:
			r.writeCommands(sub)
		}
	}
	if cmd.HasParent() {
		name := cmd.CommandPath()
		if hasText {
			name = link(name, cmd)
		}
		line := name + ": " + cmd.Short
		if len(verbs) > 0 {
			line += ": " + strings.Join(verbs, ", ")
		}
		r.index.WriteString("- " + line + "\n")
	}
}

// link returns a link to the help of a command.
func link(name string, cmd *cobra.Command) string {
	return fmt.Sprintf("[%s](#%s)", name, strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
}

// writeCommand writes the help of one command with its own flags, and says whether there was anything to write beside the
// line of the index. Flags of all commands are in the help of the root, and --help is left out.
func (r *reference) writeCommand(cmd *cobra.Command) bool {
	if !cmd.Runnable() && cmd.Long == "" {
		return false
	}
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(&r.text, "## %s\n\n```text\n%s\n", cmd.CommandPath(), r.paragraphs(cmd, long))
	if arguments := strings.TrimPrefix(strings.TrimSuffix(cmd.UseLine(), " [flags]"), cmd.CommandPath()); cmd.Runnable() && arguments != "" {
		fmt.Fprintf(&r.text, "\nArguments:%s\n", arguments)
	}
	if cmd.Example != "" {
		fmt.Fprintf(&r.text, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	if cmd.Runnable() || !cmd.HasParent() {
		r.writeFlags(cmd)
	}
	r.text.WriteString("```\n\n")
	if hasSettings(cmd) {
		r.text.WriteString("Each setting of [configuration](configuration.md#settings) is a flag of this command.\n\n")
	}
	return true
}

// paragraphs returns the description of a command. Of a paragraph that the help of another command has too, it returns the
// beginning and the name of that command.
func (r *reference) paragraphs(cmd *cobra.Command, long string) string {
	paragraphs := strings.Split(strings.TrimSpace(long), "\n\n")
	for i, p := range paragraphs {
		words := strings.Fields(p)
		if first := r.firstWith(cmd, strings.Join(words, " ")); first != "" && len(words) > repeatedWordsMin {
			paragraphs[i] = fmt.Sprintf("%s ...: see %q.", strings.Join(words[:4], " "), first)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// repeatedWordsMin is the length from which a paragraph is not repeated.
const repeatedWordsMin = 20

// firstWith returns the path of the command before this one whose help has a part too; "" if there is none.
func (r *reference) firstWith(cmd *cobra.Command, part string) string {
	if first, ok := r.first[part]; ok {
		return first
	}
	r.first[part] = cmd.CommandPath()
	return ""
}

// writeFlags writes the flags of a command: those of an earlier command with the same text by name only, and those that are
// settings of serve not at all, because the reference of settings has them.
func (r *reference) writeFlags(cmd *cobra.Command) {
	flags := cmd.LocalFlags()
	if cmd.HasParent() {
		flags = cmd.NonInheritedFlags()
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings, shared := config.Reference(), map[string][]string{}
	var firsts []string
	common := ""
	flags.VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden || hasSettings(cmd) && strings.Contains(settings, "`--"+f.Name+"`"):
			return
		case f.Usage == usualDryRun:
			common = "\nCommon flag: --dry-run\n"
			return
		}
		first := r.firstWith(cmd, strings.Join([]string{"--" + f.Name, f.Usage, f.DefValue}, "\n"))
		switch {
		case first == "":
			own.AddFlag(f)
		case shared[first] == nil:
			firsts = append(firsts, first)
			fallthrough
		default:
			shared[first] = append(shared[first], "--"+f.Name)
		}
	})
	if usages := own.FlagUsagesWrapped(cli.HelpColumns); usages != "" {
		fmt.Fprintf(&r.text, "\nFlags:\n%s", usages)
	}
	r.text.WriteString(common)
	for _, first := range firsts {
		fmt.Fprintf(&r.text, "\nFlags as of %q: %s\n", first, strings.Join(shared[first], " "))
	}
}

// usualDryRun is the text of --dry-run of most commands: the introduction has it.
const usualDryRun = "only say what would be done"

// hasSettings says whether the settings of serve are flags of a command.
func hasSettings(cmd *cobra.Command) bool {
	return cmd.Name() == "serve" || cmd.CommandPath() == "peeklock config print"
}

// TestDocsListEverySettingOfServe checks that the reference lists every setting of serve.
func TestDocsListEverySettingOfServe(t *testing.T) {
	t.Parallel()
	document.Section(t, docs+"configuration.md", "settings", config.Reference())
}
