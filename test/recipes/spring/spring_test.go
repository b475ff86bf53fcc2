// Package spring runs Spring JMS, over Qpid JMS, and Spring Cloud Azure, as they are published, against three members.
package spring

import (
	"testing"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestSpring(t *testing.T) {
	t.Parallel()
	foreign.Maven(t, "spring", "Spring")
}
