package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/test/kit"
)

// Members in containers announce host names that do not resolve outside. The member that answered the request
// accepts AMQP at the same address, so a command tries that address first, and the announced ones then.
func TestAMQPTriesTheAskedAddressAndTheAnnouncedOnes(t *testing.T) {
	t.Parallel()
	server := startStub(newStub())
	defer server.Close()
	said := say(t, devMember{Admin: server.URL}, 1, "message", "receive", "orders")
	asked := "connect to " + strings.TrimPrefix(server.URL, "http://")
	wants(t, said, "connect to 127.0.0.1:1 with key ", "no --key was given", asked)
	if strings.Index(said, asked) > strings.Index(said, "connect to 127.0.0.1:1 ") {
		t.Error("the asked address was not the first:", said)
	}
}

// In the container of a member, commands that use messages need no flag: they take the key and the certificate of the
// member, which has no address in its names, from the settings in the environment.
func TestCommandsInTheContainerUseItsKeyAndCertificate(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	cert, key, _ := peerFiles(t) // without any name
	dir := t.TempDir()
	secret := kit.WriteFile(t, "a key of the operator\n")
	startServe(t, "--dir", dir, "--key-file", secret, "--tls-cert", cert, "--tls-key", key, "--require-tls")
	env := []string{"PEEKLOCK_DIR=" + dir, "PEEKLOCK_KEY_FILE=" + secret, "PEEKLOCK_TLS_CERT=" + cert, "PEEKLOCK_TLS_KEY=" + key}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"queue", "create", "orders"}, "orders"},
		{[]string{"message", "send", "orders", "hello"}, "1"},
		{[]string{"message", "receive", "orders", "--wait", "60s"}, "hello"},
		{[]string{"bench", "--messages", "10"}, "confirmed 10"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), cli.Process{Args: c.args, Env: env, In: strings.NewReader(""), Out: &out, Err: &errs}); code != cli.ExitDone {
			t.Errorf("%q: %d %s", c.args, code, errs.String())
		}
		wants(t, out.String()+errs.String(), c.want)
	}
}
