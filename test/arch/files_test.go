package arch

import (
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// fileCalls returns the positions of calls that reach files of the operating system directly: those of
// functions of os and syscall, and of the functions of path/filepath that read folders.
func fileCalls(p *packages.Package) (found []string) {
	readers := []string{"Abs", "EvalSymlinks", "Glob", "Walk", "WalkDir"}
	for id, used := range p.TypesInfo.Uses {
		f, ok := used.(*types.Func)
		if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
			continue
		}
		switch path := f.Pkg().Path(); {
		case path == "os", path == "syscall", path == "path/filepath" && slices.Contains(readers, f.Name()):
			found = append(found, p.Fset.Position(id.Pos()).String()+": "+path+"."+f.Name())
		}
	}
	return found
}

// Data of a member passes through disk.FS, so that a simulation can lose what was not synced.
func TestDataPassesThroughTheFileSystemSeam(t *testing.T) {
	t.Parallel()
	have := loadPackages(t)
	if len(fileCalls(have["partition/disk"])) == 0 {
		t.Error("the check does not see the calls of partition/disk")
	}
	for name, p := range have {
		part, _, _ := strings.Cut(name, "/")
		if part != "partition" && part != "cluster" || name == "partition/disk" {
			continue
		}
		for _, call := range fileCalls(p) {
			t.Errorf("%s: use disk.FS", call)
		}
	}
}
