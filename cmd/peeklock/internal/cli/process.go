package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Process is the environment of a command: arguments, variables and streams.
type Process struct {
	Args        []string
	Env         []string // KEY=value
	In          io.Reader
	Out, Err    io.Writer
	Interactive bool // Err is a terminal, so a progress bar may be shown
	Asks        bool // In and Err are terminals, so a question may be asked
}

// Getenv returns the last value of a variable, or "" if it is not set.
func (p Process) Getenv(name string) string {
	value := ""
	for _, pair := range p.Env {
		if v, found := strings.CutPrefix(pair, name+"="); found {
			value = v
		}
	}
	return value
}

// Execute runs one command line and returns its exit code. Every error is printed as one line on standard error.
func Execute(ctx context.Context, p Process, root *cobra.Command) int {
	root.SetArgs(p.Args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	err := root.ExecuteContext(ctx)
	code := exitCode(ctx, err)
	if err != nil && !errors.As(err, new(exitError)) {
		printFailure(p.Err, err, code, wantsJSON(p.Args))
	}
	return code
}

// NoArgs refuses arguments. For a noun, an argument is a verb that does not exist.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = nearestMax // cobra sets this only on its own path
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %q?)", near[0])
	}
	if cmd.HasSubCommands() {
		return Usagef("%q is not a command of %s%s", args[0], cmd.CommandPath(), hint)
	}
	return Usagef("%s takes no argument, but got %q", cmd.CommandPath(), args[0])
}

// Version returns the version that the Go toolchain wrote into the binary: that of a release, else the commit as
// in "dev-80e9074abcde", else "dev".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	version := info.Main.Version
	// Without a tag the toolchain writes a pseudo-version, which is longer than members may announce.
	pseudo := regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(\+dirty)?$`)
	if commit := pseudo.FindStringSubmatch(version); commit != nil {
		return "dev-" + commit[1] + commit[2]
	}
	if version != "" && version != "(devel)" {
		return version
	}
	return "dev"
}

// IsTerminal reports whether the file is a terminal.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Mode()&os.ModeDevice != 0
}

// Group returns a command that only has subcommands and refuses verbs that it does not know.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(verbs...)
	return cmd
}

// ArgCount requires low to high arguments; high < 0: low or more.
func ArgCount(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || high >= 0 && len(args) > high {
			return Usagef("wrong number of arguments: %s", cmd.UseLine())
		}
		return nil
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
