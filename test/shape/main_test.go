package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package of four files: a uses b and c, b uses c, and c uses a method that d declares, which uses c again.
// One arrow of the cycle between c and d has to point up.
func TestUpwardArrowsAreThoseOfCycles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.test/cut\n\ngo 1.26\n",
		"a.go":   "package cut\n\nfunc a() int { return b() + c(nil) }\n\nvar _ = a\n",
		"b.go":   "package cut\n\nfunc b() int { return c(nil) }\n",
		"c.go":   "package cut\n\ntype t struct{}\n\nfunc c(x *t) int { return x.d() }\n",
		"d.go":   "package cut\n\nfunc (*t) d() int { var local int; return local }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out strings.Builder
	if err := run(&out, []string{"."}, 0, true); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(out.String())
	got = got[len(got)-12:]
	want := []string{"example.test/cut", "4", "5", "1", "20%", "5", "5", "t", "1"}
	for i, field := range want {
		if got[i] != field {
			t.Errorf("field %d is %q, want %q\n%s", i, got[i], field, out.String())
		}
	}
	if arrow := strings.Join(got[9:], " "); arrow != "c.go -> d.go" && arrow != "d.go -> c.go" {
		t.Errorf("the upward arrow is %q, want one between c.go and d.go", arrow)
	}
}
