package faults

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/test/overlay"
)

// Variable is the environment variable that names the active faults, separated by commas.
const Variable = "PEEKLOCK_PLANTED"

// All returns all faults, in alphabetical order.
func All() []Fault {
	all := slices.Concat(fsmFaults(), partitionFaults(), clusterFaults(), amqpFaults())
	slices.SortFunc(all, func(a, b Fault) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Tree returns the module with all faults, none of which is active without [Variable].
func Tree() (overlay.Tree, error) {
	module, err := overlay.Module()
	if err != nil {
		return module, err
	}
	tree, err := tree(module.Source, All())
	if err != nil {
		return tree, err
	}
	if _, err := overlay.Texts(tree); err != nil {
		return tree, fmt.Errorf("%w\nAdapt the patches in test/planted/faults to the code; the package comment says how", err)
	}
	return tree, nil
}

// builtIn is the folder of the package that tells which faults are active. It is a package in the overlay only.
const builtIn = "test/planted/faults/planted"

//go:embed planted/planted.go.txt
var planted string

// packageClause is that of a Go file.
var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// tree returns the module with some faults: their patches, the package planted, and in each patched package a file that
// gives access to it.
func tree(source string, all []Fault) (overlay.Tree, error) {
	t := overlay.Tree{Source: source, Added: []overlay.File{{Name: builtIn + "/planted.go", Text: planted}}}
	var names []string
	packages := make(map[string]bool)
	for _, f := range all {
		names = append(names, f.Name)
		for _, p := range f.Patches {
			p[2] = strings.ReplaceAll(p[2], "FAULT", fmt.Sprintf("planted(%q)", f.Name))
			t.Patches = append(t.Patches, p)
			if dir := path.Dir(p[0]); !packages[dir] {
				packages[dir] = true
				file, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(p[0])))
				if err != nil {
					return t, err
				}
				t.Added = append(t.Added, overlay.File{Name: dir + "/planted_fault.go", Text: fmt.Sprintf(
					"%s\n\nimport faults \"github.com/peeklock/peeklock/%s\"\n\nfunc planted(name string) bool { return faults.Active(name) }\n", packageClause.Find(file), builtIn,
				)})
			}
		}
	}
	t.Added = append(t.Added, overlay.File{Name: builtIn + "/names.go", Text: fmt.Sprintf("package planted\n\nvar names = %#v\n", names)})
	return t, nil
}
