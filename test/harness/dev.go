package harness

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// StartDev starts `peeklock dev`, three members in one process, on free ports, and waits
// until it prints its addresses. The members share a process: a fault of one is a fault
// of all.
func StartDev(t testing.TB, args ...string) *Cluster {
	t.Helper()
	host := newMember(t, t.TempDir(), "dev")
	host.stdoutFile = filepath.Join(host.Dir, "printed")
	host.args = append([]string{
		"dev", "--output", "json", "--amqp-port", "0", "--admin-port", "0", "--dir", filepath.Join(host.Dir, "data"),
	}, args...)
	c := &Cluster{t: t, Members: []*Member{host}}
	t.Cleanup(func() { c.close() })
	host.Start()
	var printed struct {
		Members []struct{ Name, AMQP, Admin string }
		TLS     struct{ CA string }
	}
	Eventually(t, readyWithin, "dev ready", func(context.Context) error {
		if !host.Running() {
			t.Fatalf("dev ended before it was ready:\n%s", host.logTail())
		}
		text, err := os.ReadFile(host.stdoutFile)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &printed)
	})
	c.CA, c.Members = printed.TLS.CA, nil
	for _, p := range printed.Members {
		m := *host
		m.Name, m.AMQP, m.Admin = p.Name, p.AMQP, strings.TrimPrefix(p.Admin, "http://")
		c.Members = append(c.Members, &m)
	}
	return c
}
