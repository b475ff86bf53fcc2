package emulator

import (
	"os"
	"strings"
	"testing"
)

// TestExampleInTheDocumentIsRead checks that the example of the document is read without problems.
func TestExampleInTheDocumentIsRead(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/emulator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(content), "```json\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("docs/emulator.md has no example of a Config.json")
	}
	file, err := Parse([]byte(example))
	if err != nil {
		t.Fatalf("the example of docs/emulator.md: %v", err)
	}
	if len(file.Warnings) > 0 {
		t.Errorf("the example of docs/emulator.md: %v", file.Warnings)
	}
}
