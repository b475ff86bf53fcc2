package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
)

// settingsOf loads the settings of a command line of serve.
func settingsOf(t *testing.T, args ...string) *config.Settings {
	t.Helper()
	cmd := newServe(cli.Process{})
	kit.OK(t, cmd.ParseFlags(args))
	s := kit.Must(config.Load(nil, cmd.Flags()))(t)
	return s
}

// TestOpenSettingsAreLogged checks that settings that give access to others are logged at the start.
func TestOpenSettingsAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--key-file", kit.WriteFile(t, "a key of our own")}, nil},
		{[]string{"--key-file", kit.WriteFile(t, auth.DevKey)}, []string{"key_file"}},
		{[]string{"--key-file", kit.WriteFile(t, "a key of our own"), "--trust-loopback"}, []string{"trust_loopback"}},
	} {
		s := settingsOf(t, c.args...)
		kit.Must(s.AuthConfig())(t)
		var log bytes.Buffer
		logWarnings(t.Context(), s, slog.New(slog.NewTextHandler(&log, nil)))
		wants(t, log.String(), c.want...)
		if strings.Count(log.String(), "\n") != len(c.want) {
			t.Errorf("%q: %s", c.args, log.String())
		}
	}
}

// TestDevPrintsThatLoopbackIsTrusted checks that the first lines of output say that no key is needed.
func TestDevPrintsThatLoopbackIsTrusted(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	out := kit.Must(output.NewOutput(&printed, "table"))(t)
	kit.OK(t, (&devOptions{dir: "data"}).print(out, []memberParts{{}}, nil, nil))
	lines := strings.Split(printed.String(), "\n")
	wants(t, strings.Join(lines[:2], "\n"), "Peeklock is ready", "without a key")
}

// TestDevSaysWhichPortsItCouldNotBind: without the ports of the cloud service, --tls says what some clients lose.
func TestDevSaysWhichPortsItCouldNotBind(t *testing.T) {
	t.Parallel()
	o := &devOptions{tls: true, amqpPort: 5672}
	var first memberParts
	_ = o.bindTLS(t.Context(), &first) // now the ports are in use, here or elsewhere
	defer first.closeListeners()
	unbound := o.bindTLS(t.Context(), &memberParts{})
	var printed bytes.Buffer
	out := kit.Must(output.NewOutput(&printed, "table"))(t)
	kit.OK(t, (&devTLS{unbound: unbound}).note(out, nil))
	wants(t, printed.String(), "port 5671 could not be bound (", "over AMQP", "port 443 could not be bound (", "administration clients")
}
