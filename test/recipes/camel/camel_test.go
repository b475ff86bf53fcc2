// Package camel runs routes of Apache Camel, as it is published, against three members: its components azure-servicebus,
// over the official Java client, and amqp, over Qpid JMS.
package camel

import (
	"testing"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestRoutes(t *testing.T) {
	t.Parallel()
	foreign.Maven(t, "camel", "routes of Camel")
}
