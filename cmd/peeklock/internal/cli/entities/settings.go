package entities

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/fsm"
)

// settingFlag is the flag of one setting of entities. A setting whose flag is not given stays nil, and the server
// applies its default.
type settingFlag struct {
	*entity.Setting
	given *entity.Settings
}

var _ pflag.Value = settingFlag{}

// Set parses the value of the flag.
func (f settingFlag) Set(text string) error {
	if f.Choices != nil && !slices.ContainsFunc(f.Choices, func(choice string) bool { return strings.EqualFold(choice, text) }) {
		return fmt.Errorf("%q is none of %s%s", output.Printable(text, 60), strings.Join(f.Choices, ", "), cli.Nearest(text, f.Choices))
	}
	return f.Parse(text, f.given)
}

// String returns no default: the help text from Usage shows it.
func (settingFlag) String() string { return "" }

// settingFlags adds the flags of the settings of the kind. Settings that are fixed after creation get a flag only
// in a command that creates. The values of the flags are stored in given.
func settingFlags(cmd *cobra.Command, given *entity.Settings, kind fsm.EntityKind, creates bool) {
	settings := entity.Table()
	for i := range settings {
		s := &settings[i]
		if !s.Has(kind) || s.Fixed && !creates {
			continue
		}
		flag := cmd.Flags().VarPF(settingFlag{s, given}, s.Flag, "", s.Usage(kind))
		if s.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
		if s.Choices != nil {
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// completeDestinations offers queues and topics for the settings that name one.
func completeDestinations() map[string]command.Completer {
	flags := map[string]command.Completer{}
	settings := entity.Table()
	for i := range settings {
		if settings[i].Destination {
			flags[settings[i].Flag] = command.CompleteNames("queues", "topics")
		}
	}
	return flags
}
