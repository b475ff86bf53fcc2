package offline

import (
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/command"
)

func versionVerb() command.Verb {
	return command.Verb{Use: "version", Short: "Print the version of this binary", Run: func(i command.Invocation) error {
		return i.Out.Fields(versionInfo{Version: cli.Version()})
	}}
}

// versionInfo is the answer of peeklock version.
type versionInfo struct {
	Version string `json:"version"`
}
