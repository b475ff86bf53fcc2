package faults

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
	"github.com/peeklock/peeklock/test/overlay"
)

// module is the path from this package to the module.
const module = "../../.."

func TestPatchesFit(t *testing.T) {
	t.Parallel()
	for _, f := range All() {
		tree, err := tree(module, []Fault{f})
		if err == nil {
			_, err = overlay.Texts(tree)
		}
		if err != nil {
			t.Errorf("fault %s: %v\nThe code has changed where the fault is planted. Write the new text into the patch (package test/planted/faults),\n"+
				"change the replacement so that it still makes this fault, and run: make planted FAULTS=%s", f.Name, err, f.Name)
		}
		if !slices.ContainsFunc(f.Patches, func(p overlay.Patch) bool { return strings.Contains(p[2], "FAULT") }) {
			t.Errorf("fault %s: no replacement contains the condition FAULT", f.Name)
		}
	}
	if t.Failed() {
		return
	}
	all := kit.Must(tree(module, All()))(t)
	texts, err := overlay.Texts(all)
	if err != nil {
		t.Fatalf("each fault fits alone, but not all together: %v", err)
	}
	for name, text := range texts {
		if _, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution); err != nil {
			t.Errorf("with all faults, %s is not a Go file: %v", name, err)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range All() {
		names = append(names, f.Name)
	}
	if unique := slices.Compact(slices.Clone(names)); !slices.Equal(unique, names) {
		t.Errorf("some faults have the same name: %q", names)
	}
}
