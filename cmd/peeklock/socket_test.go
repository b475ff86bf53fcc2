package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cmd/listen"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/client"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/topology"
)

// TestControlSocketIsOpenToItsOwnerOnly checks that only its owner can open the socket, that a socket left by a
// killed process is replaced, that one in use or of another kind is not, and that closing removes the socket.
func TestControlSocketIsOpenToItsOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, config.SocketName)
	open := func() net.Listener {
		t.Helper()
		l := kit.Must(listenSocket(t.Context(), path))(t)
		return l
	}
	first := open()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Fatal(info, err)
	}
	if _, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Error(err)
	}

	// A killed process leaves the file.
	left := filepath.Join(dir, "left")
	kit.OK(t, os.Rename(path, left))
	stale := open()
	if err := stale.(*socketListener).Listener.Close(); err != nil { // without removing the file
		t.Fatal(err)
	}
	second := open()
	conn := kit.Must((&net.Dialer{}).DialContext(t.Context(), "unix", path))(t)
	_ = conn.Close()
	if err := first.Close(); err != nil { // another socket has its path now
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := second.Close(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || names[0].Name() != "left" {
		t.Error(names, err)
	}

	kit.OK(t, os.WriteFile(path, nil, 0o600))
	if _, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Error(err)
	}
	if _, err := listenSocket(t.Context(), filepath.Join(dir, "none", "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestControlSocketPathIsBounded checks that a path that is too long for a system is refused before anything is
// opened, with a hint.
func TestControlSocketPathIsBounded(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("d", config.SocketPathBytesMax-len("//"+config.SocketName))
	for _, c := range []struct {
		args    []string
		path    string
		refused bool
	}{
		{nil, "peeklock-data/peeklock.sock", false},
		{[]string{"--dir", "/data"}, "/data/peeklock.sock", false},
		{[]string{"--dir", "/data", "--control-socket", "/run/one.sock"}, "/run/one.sock", false},
		{[]string{"--dir", long}, long + "/peeklock.sock", false},
		{[]string{"--dir", long + "d"}, "", true},
		{[]string{"--dir", long + "d", "--control-socket", "/run/one.sock"}, "/run/one.sock", false},
		{[]string{"--control-socket", long + strings.Repeat("d", 20)}, "", true},
	} {
		s := settingsOf(t, c.args...)
		switch err := s.Validate(); {
		case c.refused != (err != nil), err != nil && !strings.Contains(err.Error(), "at most 103 are possible") || err != nil && !strings.Contains(err.Error(), "control_socket"):
			t.Errorf("%q: %v", c.args, err)
		case err == nil && s.ControlSocketPath() != c.path:
			t.Errorf("%q: %s", c.args, s.ControlSocketPath())
		}
	}
	// The longest allowed path can be opened on this system.
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("s", config.SocketPathBytesMax-len(dir)-1))
	l, err := listenSocket(t.Context(), path)
	if err != nil || len(path) != config.SocketPathBytesMax {
		t.Fatal(len(path), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestServerAddressesFromFlagsAndEnvironment checks which member a command contacts when no setting, or several,
// name one.
func TestServerAddressesFromFlagsAndEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, env []string
		want         string // joined by commas; "": an error
	}{
		{nil, nil, client.ServerDefault},
		{nil, []string{"PEEKLOCK_DIR=/data"}, "unix:///data/peeklock.sock"},
		{nil, []string{"PEEKLOCK_DIR=data"}, "unix://data/peeklock.sock"},
		{nil, []string{"PEEKLOCK_DIR=/data", "PEEKLOCK_CONTROL_SOCKET=/run/one.sock"}, "unix:///run/one.sock"},
		{nil, []string{"PEEKLOCK_DIR=/data", "PEEKLOCK_SERVER=host:1"}, "http://host:1"},
		{[]string{"unix:///run/50%.sock"}, []string{"PEEKLOCK_SERVER=host:1"}, "unix:///run/50%.sock"},
		{[]string{"unix:///run/one.sock", "https://other"}, nil, "unix:///run/one.sock,https://other"},
		{[]string{"unix://"}, nil, ""},
	} {
		got, err := (&client.Client{Process: cli.Process{Env: c.env}, Servers: c.servers}).Addresses()
		if strings.Join(got, ",") != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q %q: %q, %v", c.servers, c.env, got, err)
		}
	}
}

// status returns the status of a request for operators, with a host name of this machine; first is sent before it.
func status(t *testing.T, address, first string) int {
	t.Helper()
	conn := kit.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", address))(t)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	kit.Must(io.WriteString(conn, first+"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))(t)
	response := kit.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	_ = response.Body.Close()
	return response.StatusCode
}

// TestServeTrustsNoAddressByDefault checks that serve trusts no client that connects from 127.0.0.1 to localhost,
// unless the operator configures it, and never an address 127.0.0.1 that a proxy reports. The socket is for
// operators, even when TLS is required.
func TestServeTrustsNoAddressByDefault(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts members")
	}
	files := kit.Must(listen.Development(t.TempDir()))(t)
	const claim = "PROXY TCP4 127.0.0.1 127.0.0.1 4711 5300\r\n"
	near := []string{"--proxy-protocol-from", "127.0.0.0/8"}
	secure := []string{"--tls-cert", files.Cert, "--tls-key", files.Key, "--require-tls"}
	for name, c := range map[string]struct {
		args  []string
		first string
		want  int
	}{
		"by default":                {nil, "", 401},
		"told to trust":             {[]string{"--trust-loopback"}, "", 200},
		"a proxy says so":           {near, claim, 401},
		"a proxy and told to trust": {append([]string{"--trust-loopback"}, near...), claim, 401},
		"TLS":                       {secure, "", 400},
		"TLS and told to trust":     {append([]string{"--trust-loopback"}, secure...), "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, address, log := startServe(t, append([]string{"--key", auth.DevKey}, c.args...)...)
			if got := status(t, address, c.first); got != c.want {
				t.Errorf("status %d, want %d", got, c.want)
			}
			socket := regexp.MustCompile(`control_socket=(\S+)`).FindStringSubmatch(log.String())[1]
			m := devMember{Admin: client.SocketScheme + socket}
			wants(t, say(t, m, 0, "cluster", "status"), "alive")
			say(t, m, 0, "queue", "create", "orders")
			if slices.Contains(c.args, "--proxy-protocol-from") {
				return // the command does not act as a proxy
			}
			wants(t, say(t, m, 0, "message", "send", "orders", "hello", "--ca", files.CA))
			wants(t, say(t, m, 0, "message", "receive", "orders", "--ca", files.CA), "hello")
		})
	}
}

// TestProxiedClientsAreAudited checks that the audit log has the address of the client behind a proxy.
func TestProxiedClientsAreAudited(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.log")
	_, address, _ := startServe(t, "--key", auth.DevKey, "--proxy-protocol-from", "127.0.0.1/32", "--audit-log", audit)
	conn := kit.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", address))(t)
	defer conn.Close()
	const wrong = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: SharedAccessSignature sr=http%%3A%%2F%%2Flocalhost&sig=x&se=9999999999&skn=RootManageSharedAccessKey\r\nConnection: close\r\n\r\n"
	kit.Must(fmt.Fprintf(conn, "PROXY TCP4 198.51.100.7 127.0.0.1 4711 5300\r\n"+wrong))(t)
	kit.Must(io.ReadAll(conn))(t)
	text, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(text), "198.51.100.7") || strings.Contains(string(text), `"127.0.0.1`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestBackupsAreAudited checks that a backup with the command line leaves a line for each partition, with who made it.
func TestBackupsAreAudited(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a member")
	}
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.log")
	_, address, _ := startServe(t, "--key", auth.DevKey, "--key-name", "nightly", "--partitions", "1", "--audit-log", audit)
	say(t, devMember{Admin: "http://" + address}, 0, "cluster", "backup", filepath.Join(t.TempDir(), "copy"), "--key", auth.DevKey, "--key-name", "nightly")
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"0", "1"} {
		found := false
		for line := range strings.Lines(string(text)) {
			found = found || strings.Contains(line, `"operation":"back up","kind":"partition","name":"`+part+`"`) &&
				strings.Contains(line, `"who":"nightly"`) && strings.Contains(line, `"outcome":"OK"`)
		}
		if !found {
			t.Errorf("no line says that nightly has backed up partition %s:\n%s", part, text)
		}
	}
}

// TestCommandsUseTheControlSocket checks that a command uses plain HTTP through a socket, and reports when no
// process listens on it.
func TestCommandsUseTheControlSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	ask := func() (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), cli.Process{Args: []string{"member", "list"}, Env: []string{"PEEKLOCK_CONTROL_SOCKET=" + path}, Out: &out, Err: &errs})
		return code, out.String() + errs.String()
	}
	if code, text := ask(); code != cli.ExitRefused || !strings.Contains(text, "no member answers at unix://"+path) {
		t.Error(code, text)
	}
	l := kit.Must(listenSocket(t.Context(), path))(t)
	server := &httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != client.SocketHost || r.Header.Get("Authorization") != "" {
			t.Error(r.Host, r.Header)
		}
		answer(w, 200, api.Members{Members: []api.Member{{Member: topology.Member{ID: "1", Name: "here"}}}})
	})}}
	server.Start()
	defer server.Close()
	if code, text := ask(); code != cli.ExitDone || !strings.Contains(text, "here") {
		t.Error(code, text)
	}
}
