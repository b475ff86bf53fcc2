package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestRuntimeIsKnown(t *testing.T) {
	t.Parallel()
	if !strings.HasPrefix(runtime.Version(), "go1.26") {
		t.Skipf("the patches are those of Go 1.26, and this is %s", runtime.Version())
	}
	dir := t.TempDir()
	if err := write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	for original, copied := range overlay.Replace {
		if _, err := os.Stat(copied); err != nil {
			t.Errorf("%s: %v", original, err)
		}
	}
}
