package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// settingFlag is the flag of one setting of entities. The default is the server's: a setting whose flag is
// not given stays nil.
type settingFlag struct {
	*entity.Setting
	given *entity.Settings
}

var _ pflag.Value = settingFlag{}

// Set parses the value of the flag.
func (f settingFlag) Set(text string) error { return f.Parse(text, f.given) }

// String is the default for the help, which Usage shows.
func (settingFlag) String() string { return "" }

// settingFlags adds the flags of the settings that entities of the kind have; those that are fixed after
// creation only to a command that creates. Given flags are stored in given.
func (c *client) settingFlags(cmd *cobra.Command, given *entity.Settings, kind fsm.EntityKind, creates bool) {
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
		switch {
		case s.Choices != nil:
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp))
		case s.Destination:
			_ = cmd.RegisterFlagCompletionFunc(s.Flag, func(cmd *cobra.Command, _ []string, part string) ([]string, cobra.ShellCompDirective) {
				return c.complete("queues", "topics")(cmd, nil, part)
			})
		}
	}
}

// durationFlag is a length of time on the command line: "30s", "PT30S" or "forever".
type durationFlag struct{ to **entity.Duration }

var _ pflag.Value = durationFlag{}

// Set parses what was given.
func (l durationFlag) Set(text string) error {
	d, err := entity.ParseDuration(text)
	if err == nil {
		*l.to = (*entity.Duration)(&d)
	}
	return err
}

// String is the value so far; there is no default, the server has one.
func (l durationFlag) String() string {
	if l.to == nil || *l.to == nil {
		return ""
	}
	return (*l.to).String()
}

// Type is what the help calls it.
func (l durationFlag) Type() string { return "duration" }
