// Package java runs the official Java client, azure-messaging-servicebus, as it is
// published against three members. The scenarios are the classes in src/test, each named
// after the promise that it shows; JUnit runs them, and Maven, which brings both.
package java

import (
	"testing"

	"github.com/peeklock/peeklock/test/conformance/foreign"
	"github.com/peeklock/peeklock/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestOfficialClient(t *testing.T) {
	t.Parallel()
	foreign.Maven(t, "java", "the official Java client")
}
