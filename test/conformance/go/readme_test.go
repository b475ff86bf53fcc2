package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/harness"
	"github.com/peeklock/peeklock/test/kit"
)

// emulator is the connection string in the documents; tests replace only the port.
const emulator = "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"

// TestDocumentedPrograms runs the Go programs of the documents unchanged against `dev`.
func TestDocumentedPrograms(t *testing.T) {
	t.Parallel()
	dev := harness.StartDev(t)
	dev.CreateQueue(t, "orders", harness.Settings{})
	_, port, _ := strings.Cut(dev.Members[0].AMQP, ":")
	for _, document := range []string{"README.md", "docs/getting-started/go.md"} {
		content := kit.Must(os.ReadFile(filepath.Join("../../..", document)))(t)
		_, program, found := strings.Cut(string(content), "```go\npackage main\n")
		program, _, closed := strings.Cut(program, "```")
		if !found || !closed || !strings.Contains(program, emulator) {
			t.Fatalf("%s has no Go program with the connection string of dev", document)
		}
		program = strings.Replace("package main\n"+program, "localhost:5672", "localhost:"+port, 1)
		folder, err := os.MkdirTemp(".", "peeklock-program-") //nolint:usetesting // within the module, so that the client of go.mod is found
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		kit.OK(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600))
		printed, err := exec.CommandContext(t.Context(), "go", "run", "./"+folder).CombinedOutput()
		if err != nil || string(printed) != "received: one coffee\n" {
			t.Errorf("the program of %s: %v\n%s", document, err, printed)
		}
		dev.WaitCounts(t, "orders", harness.Counts{})
	}
}
