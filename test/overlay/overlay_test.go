package overlay_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/peeklock/peeklock/test/overlay"
)

func TestOverlayReplacesAndAdds(t *testing.T) {
	t.Parallel()
	source, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "a.go"), []byte("one two three"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := overlay.Write(dir,
		overlay.Tree{Source: source, Patches: []overlay.Patch{{"a.go", "two", "2"}}, Added: []overlay.File{{Name: "sub/b.go", Text: "new"}}},
		overlay.Tree{Source: source, Patches: []overlay.Patch{{"a.go", "2 three", "2 3"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var written struct{ Replace map[string]string }
	if err := json.Unmarshal(content, &written); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a.go": "one 2 3", "sub/b.go": "new"} {
		got, err := os.ReadFile(written.Replace[filepath.Join(source, name)])
		if err != nil || string(got) != want {
			t.Errorf("%s is replaced by %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestTextThatIsNotThereOnceIsRefused(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "a.go"), []byte("a b a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []overlay.Patch{{"a.go", "a", "c"}, {"a.go", "x", "c"}, {"missing.go", "a", "c"}} {
		if _, err := overlay.Texts(overlay.Tree{Source: source, Patches: []overlay.Patch{p}}); !errors.Is(err, overlay.ErrPatch) {
			t.Errorf("patch %+v: error %v, want %v", p, err, overlay.ErrPatch)
		}
	}
}
