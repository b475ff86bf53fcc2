package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/tools/go/packages"

	"github.com/peeklock/peeklock/test/kit"
)

// read returns the content of a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	content := kit.Must(os.ReadFile(filepath.Join(root, path)))(t)
	return string(content)
}

// TestPinsKeepTheirReason checks that go.mod explains its pins beside the require lines: the newest
// versions of raft, raft-boltdb and memberlist do not build together, and a developer who updates
// one of them must see why.
func TestPinsKeepTheirReason(t *testing.T) {
	t.Parallel()
	mod := kit.Must(modfile.Parse("go.mod", []byte(read(t, "go.mod")), nil))(t)
	pins := map[string]string{
		"github.com/hashicorp/raft":           "v1.7.3",
		"github.com/hashicorp/raft-boltdb/v2": "v2.3.1",
		"github.com/hashicorp/memberlist":     "v0.6.0",
		"go.etcd.io/bbolt":                    "v1.5.0",
	}
	reasons := reasons(mod)
	for _, r := range mod.Require {
		want, pinned := pins[r.Mod.Path]
		if !pinned {
			continue
		}
		delete(pins, r.Mod.Path)
		if r.Mod.Version != want {
			t.Errorf("%s is at %s, pinned at %s", r.Mod.Path, r.Mod.Version, want)
		}
		if !strings.Contains(reasons[r.Mod.Path], "go-metrics") {
			t.Errorf("%s stands in go.mod without the reason of its pin", r.Mod.Path)
		}
	}
	for path := range maps.Keys(pins) {
		t.Errorf("%s is not required", path)
	}
}

// TestRaftBehavesAsRead checks the table of raft's private behaviour in docs/raft-notes.md against the version in go.mod:
// each place has to be read again when that version changes.
func TestRaftBehavesAsRead(t *testing.T) {
	t.Parallel()
	found, err := packages.Load(&packages.Config{Mode: packages.NeedModule, Dir: root}, "github.com/hashicorp/raft")
	if err != nil || len(found) != 1 || found[0].Module == nil {
		t.Fatalf("find raft: %v, %v", found, err)
	}
	module, notes := found[0].Module, read(t, "docs/raft-notes.md")
	if version := "| `hashicorp/raft` | " + strings.TrimPrefix(module.Version, "v") + " |"; !strings.Contains(notes, version) {
		t.Errorf("go.mod has raft %s, and docs/raft-notes.md was written for another version: read what it relies on again", module.Version)
	}
	rows := regexp.MustCompile("(?m)^\\| `(\\w+\\.go):(\\d+)`, \\w+ \\| `(.+?)` \\|").FindAllStringSubmatch(notes, -1)
	if len(rows) < raftPlacesMin {
		t.Errorf("%d places of raft are listed, want at least %d", len(rows), raftPlacesMin)
	}
	for _, row := range rows {
		source := kit.Must(os.ReadFile(filepath.Join(module.Dir, row[1])))(t)
		number := kit.Must(strconv.Atoi(row[2]))(t)
		lines := strings.Split(string(source), "\n")
		if number > len(lines) || !strings.Contains(lines[number-1], row[3]) {
			t.Errorf("raft %s, %s:%d is not %q", module.Version, row[1], number, row[3])
		}
	}
}

// raftPlacesMin guards against a table that the test no longer finds.
const raftPlacesMin = 15

// reasons maps each required module to the comments above its line and above its block.
func reasons(mod *modfile.File) map[string]string {
	text := func(c *modfile.Comments) string {
		var b strings.Builder
		for _, line := range c.Before {
			b.WriteString(line.Token + "\n")
		}
		return b.String()
	}
	over := map[string]string{}
	for _, e := range mod.Syntax.Stmt {
		switch e := e.(type) {
		case *modfile.Line:
			if len(e.Token) > 1 {
				over[e.Token[1]] = text(e.Comment())
			}
		case *modfile.LineBlock:
			for _, line := range e.Line {
				over[line.Token[0]] = text(e.Comment()) + text(line.Comment())
			}
		}
	}
	return over
}

// TestUpgradeGuideListsEveryFormatLevel checks that the guide names the format level of the code and describes each level.
func TestUpgradeGuideListsEveryFormatLevel(t *testing.T) {
	t.Parallel()
	level := constantOf(loadPackages(t), "fsm.FormatLevel")
	if level == nil {
		t.Fatal("there is no constant fsm.FormatLevel")
	}
	newest, _ := constant.Int64Val(level)
	guide := read(t, "docs/upgrade.md")
	if want := fmt.Sprintf("This release knows level %d.", newest); !strings.Contains(guide, want) {
		t.Errorf("docs/upgrade.md does not say %q", want)
	}
	for n := range newest {
		if row := fmt.Sprintf("\n| %d | ", n+1); !strings.Contains(guide, row) {
			t.Errorf("docs/upgrade.md does not describe format level %d", n+1)
		}
	}
}

// TestReadmeOpensWithTheTwoCommands checks the two commands that a new user types first.
func TestReadmeOpensWithTheTwoCommands(t *testing.T) {
	t.Parallel()
	head, _, _ := strings.Cut(read(t, "README.md"), "\n## ")
	for _, command := range []string{"go run ./cmd/peeklock dev", "go test ./..."} {
		if !strings.Contains(head, command) {
			t.Errorf("the opening of README.md does not show %q", command)
		}
	}
	if !strings.Contains(read(t, ".ci/run"), "make check") || !strings.Contains(read(t, ".ci/check"), "./test/fault ./...") {
		t.Error(".ci/run does not run the tests of README.md through make check and .ci/check")
	}
}

// TestPathOfAMessageNamesWhatExists checks that the functions named in the path of a message in
// ARCHITECTURE.md exist, because readers search for them.
func TestPathOfAMessageNamesWhatExists(t *testing.T) {
	t.Parallel()
	_, section, ok := strings.Cut(read(t, "ARCHITECTURE.md"), "\n## The path of a message\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no section on the path of a message")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	steps := regexp.MustCompile("(?m)^(fsm|partition|cluster|amqp|admin) +(.*)$").FindAllStringSubmatch(section, -1)
	if len(steps) < 8 {
		t.Fatalf("only %d steps found in the path of a message", len(steps))
	}
	name := regexp.MustCompile(`\b([A-Za-z]\w*\.)?[A-Za-z]\w*\b`)
	have := loadPackages(t)
	for _, step := range steps {
		names := declared(have, step[1])
		text, _, _ := strings.Cut(step[2], "  ") // two spaces, then a description
		for _, part := range strings.Split(text, "→") {
			if n := name.FindString(part); n != "" && !names[n] {
				t.Errorf("ARCHITECTURE.md: %s has no %s", step[1], n)
			}
		}
	}
}

// notOfGo are names in the design documents that the Go code does not declare: of other libraries, of tests, and of properties.
var notOfGo = []string{"Bearer", "NetworkTransport", "checkStored", "http.CrossOriginProtection", "prevIndex", "retryDelay", "sys.x", "unicode.IsLetter", "user.sys.x"}

// TestDesignDocumentsNameWhatExists checks the Go files and names between backticks in each DESIGN.md: a file is below the
// folder of the document or at this path of the repository, a name is anywhere in the code. Names of one word in lower case are not checked, because they may be something else.
func TestDesignDocumentsNameWhatExists(t *testing.T) {
	t.Parallel()
	names, files, documents, checked := inCode(loadPackages(t)), []string{}, map[string]string{}, 0
	cited(t, func(file, content string) {
		if files = append(files, file); path.Base(file) == "DESIGN.md" {
			documents[path.Dir(file)+"/"] = content
		}
	})
	name := regexp.MustCompile("`([A-Za-z]\\w*(?:[./][A-Za-z]\\w*)*)`")
	code, notCode := regexp.MustCompile(`^[A-Z][a-z]+$|[a-z][A-Z]|\.`), regexp.MustCompile(`/|\.(copy|db|json|md|sock|txt)$|^(Benchmark|Test)`)
	for folder, content := range documents {
		for _, found := range name.FindAllStringSubmatch(content, -1) {
			switch n := found[1]; {
			case strings.HasSuffix(n, ".go"):
				if checked++; !slices.ContainsFunc(files, func(f string) bool { return f == n || strings.HasPrefix(f, folder) && strings.HasSuffix(f, "/"+n) }) {
					t.Errorf("the DESIGN.md of %s names the file %s, which does not exist", folder, n)
				}
			case code.MatchString(n) && !notCode.MatchString(n) && !slices.Contains(notOfGo, n) && !names[n]:
				t.Errorf("the DESIGN.md of %s names %s, which nothing is called", folder, n)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d names of files found: the test looks at the wrong place", checked)
	}
}

// inCode collects the names that packages declare and use, as Name and package.Name, those of methods and fields also as Type.Name
// and package.Type.Name.
func inCode(have map[string]*packages.Package) map[string]bool {
	names := map[string]bool{}
	member := func(of types.Type, name string) {
		if pointer, ok := of.(*types.Pointer); ok {
			of = pointer.Elem()
		}
		if of, ok := of.(*types.Named); ok && of.Obj().Pkg() != nil {
			names[of.Obj().Name()+"."+name], names[of.Obj().Pkg().Name()+"."+of.Obj().Name()+"."+name] = true, true
		}
	}
	for _, p := range have {
		for _, of := range []map[*ast.Ident]types.Object{p.TypesInfo.Defs, p.TypesInfo.Uses} {
			for _, o := range of {
				if o == nil || o.Pkg() == nil {
					continue
				}
				names[o.Name()], names[o.Pkg().Name()+"."+o.Name()] = true, true
				if signature, ok := o.Type().(*types.Signature); ok && signature.Recv() != nil {
					member(signature.Recv().Type(), o.Name())
				}
			}
		}
		for _, s := range p.TypesInfo.Selections {
			member(s.Recv(), s.Obj().Name())
		}
	}
	return names
}

// declared collects the functions, methods (as Type.Method), interface methods and types of a
// package and the packages below it; the latter also with the package name as a prefix.
func declared(have map[string]*packages.Package, pkgPath string) map[string]bool {
	names := map[string]bool{}
	for at, p := range have {
		if at != pkgPath && !strings.HasPrefix(at, pkgPath+"/") {
			continue
		}
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				for _, n := range declaredBy(d) {
					names[n] = true
					names[p.Name+"."+n] = true
				}
			}
		}
	}
	return names
}

// declaredBy returns the names that one declaration declares.
func declaredBy(d ast.Decl) []string {
	var names []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{receiver(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			ts, ok := s.(*ast.TypeSpec)
			if !ok {
				continue
			}
			names = append(names, ts.Name.Name)
			if face, ok := ts.Type.(*ast.InterfaceType); ok {
				for _, m := range face.Methods.List {
					for _, n := range m.Names {
						names = append(names, ts.Name.Name+"."+n.Name)
					}
				}
			}
		}
	}
	return names
}

// receiver returns the type name of a method's receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
