package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
)

// TestProxyNetworks: networks are read in every layer's form, and what is none is refused.
func TestProxyNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		want    string
		refused string
	}{
		{nil, "[]", ""},
		{[]string{"--proxy-protocol-from", "10.1.0.0/16,2001:db8::/32", "--proxy-protocol-from", "10.2.3.4/32"}, "[10.1.0.0/16 2001:db8::/32 10.2.3.4/32]", ""},
		{[]string{"--proxy-protocol-from", "10.1.2.3/16"}, "[10.1.0.0/16]", ""},
		{[]string{"--proxy-protocol-from", "10.1.2.3"}, "", `"10.1.2.3" is no network`},
		{[]string{"--proxy-protocol-from", "balancer"}, "", "is no network"},
		{[]string{"--proxy-protocol-from", "10.0.0.0/33"}, "", "is no network"},
		{[]string{"--proxy-protocol-from", "::ffff:10.0.0.0/104"}, "", "is no network"},
	} {
		s := settingsOf(t, c.args...)
		err := s.validate()
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		if networks, _ := s.proxyNetworks(); err != nil || fmt.Sprint(networks) != c.want {
			t.Errorf("%q: %v, %v", c.args, networks, err)
		}
	}
}

// TestOpenSettingsAreLogged: what lets others in is told at the start.
func TestOpenSettingsAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--key-file", written(t, "a key of our own")}, nil},
		{[]string{"--key-file", written(t, auth.DevKey)}, []string{"key_file"}},
		{[]string{"--key-file", written(t, "a key of our own"), "--trust-loopback"}, []string{"trust_loopback"}},
	} {
		s := settingsOf(t, c.args...)
		if _, err := s.keys(); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s.logWarnings(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		wants(t, log.String(), c.want...)
		if strings.Count(log.String(), "\n") != len(c.want) {
			t.Errorf("%q: %s", c.args, log.String())
		}
	}
}

// TestDevPrintsThatLoopbackIsTrusted: the first lines that people read say that no key is needed.
func TestDevPrintsThatLoopbackIsTrusted(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	out, err := newOutput(&printed, "table")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&devOptions{dir: "data"}).print(out, []memberParts{{}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(printed.String(), "\n")
	wants(t, strings.Join(lines[:2], "\n"), "Peeklock is ready", "without a key")
}
