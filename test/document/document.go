package document

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update rewrites documents instead of comparing them.
var update = flag.Bool("update", false, "rewrite the generated documents in docs/") //nolint:gochecknoglobals // a flag of tests, like those of package testing

// File compares a whole document with its generated content. path is relative to the folder of the
// test. Concurrent calls for different files are safe.
func File(t *testing.T, path, want string) {
	t.Helper()
	have, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil && !*update {
		t.Fatalf("%v: run `make docs`", err)
	}
	compare(t, path, string(have), want)
}

// Section compares one generated section of a document: the lines between `<!-- generated: name -->`
// and `<!-- end: name -->`. An empty line separates the section from each marker.
func Section(t *testing.T, path, name, want string) {
	t.Helper()
	content, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	have := string(content)
	fresh, ok := replace(have, name, want)
	if !ok {
		t.Fatalf("%s has no section %q: add the lines <!-- generated: %s --> and <!-- end: %s -->", path, name, name, name)
	}
	compare(t, path, have, fresh)
}

// replace returns the text with want as the section, and false when the text has no such section.
func replace(text, name, want string) (string, bool) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	before, rest, opened := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	return before + begin + "\n" + strings.TrimSpace(want) + "\n\n" + end + after, opened && closed
}

func compare(t *testing.T, path, have, want string) {
	t.Helper()
	if have == want {
		return
	}
	if *update {
		if err := os.WriteFile(filepath.FromSlash(path), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is stale: run `make docs` (-want +have):\n%s", path, cmp.Diff(want, have))
}
