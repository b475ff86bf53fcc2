package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

// impure says why a node could make two replicas differ, or returns "". Only filters may use
// floating point, because they compare the doubles that clients send.
func impure(info *types.Info, n ast.Node, floats bool) string {
	switch n := n.(type) {
	case *ast.RangeStmt:
		if t := info.TypeOf(n.X); t != nil {
			if _, ok := t.Underlying().(*types.Map); ok {
				return "ranges over a map"
			}
		}
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		return "selects on channels"
	case *ast.SendStmt:
		return "sends on a channel"
	case *ast.BasicLit, *ast.Ident:
		if b, ok := info.TypeOf(n.(ast.Expr)).(*types.Basic); ok && b.Info()&types.IsFloat != 0 && !floats {
			return "computes with floating point"
		}
	}
	return ""
}

// impurities lists what impure finds in the files, with positions.
func impurities(fset *token.FileSet, info *types.Info, files []*ast.File, floats bool) []string {
	var found []string
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if n != nil {
				if why := impure(info, n, floats); why != "" {
					found = append(found, fmt.Sprintf("%s: %s", fset.Position(n.Pos()), why))
				}
			}
			return true
		})
	}
	return found
}

func TestMachineIsDeterministic(t *testing.T) {
	t.Parallel()
	have := loadPackages(t)
	for pkgPath, p := range have {
		if pkgPath != "fsm" && !strings.HasPrefix(pkgPath, "fsm/") {
			continue
		}
		if len(p.Syntax) == 0 {
			t.Errorf("no files in %s", pkgPath)
		}
		for _, why := range impurities(p.Fset, p.TypesInfo, p.Syntax, pkgPath == "fsm/filter") {
			t.Error(why)
		}
	}
}

// TestMachineCheckSeesPlantedBugs checks that the check finds each thing that it forbids.
func TestMachineCheckSeesPlantedBugs(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"map range": "for k := range map[int]int{} { _ = k }",
		"goroutine": "go func() {}()",
		"select":    "select { default: }",
		"send":      "make(chan int, 1) <- 1",
		"float":     "x := 1.5; _ = x",
	} {
		if len(inspect(t, body)) == 0 {
			t.Errorf("%s: not seen", name)
		}
	}
	if found := inspect(t, "for i := range []int{1} { _ = i }"); len(found) != 0 {
		t.Errorf("a range over a slice is reported: %v", found)
	}
}

// inspect runs the check on a function with the given body.
func inspect(t *testing.T, body string) []string {
	t.Helper()
	fset := token.NewFileSet()
	f := kit.Must(parser.ParseFile(fset, "planted.go", "package planted\nfunc f() { "+body+" }", 0))(t)
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	kit.Must((&types.Config{Importer: importer.Default()}).Check("planted", fset, []*ast.File{f}, info))(t)
	return impurities(fset, info, []*ast.File{f}, false)
}
