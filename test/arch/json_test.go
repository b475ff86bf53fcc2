package arch

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// jsonPackages lists packages whose JSON is stored or leaves the process. The packages below them
// count too.
func jsonPackages() []string { return []string{"partition", "cluster", "topology", "admin", "cmd"} }

// packagesWithJSON returns the packages that jsonPackages lists and those below them.
func packagesWithJSON(t *testing.T) []*packages.Package {
	t.Helper()
	var all []*packages.Package
	for pkgPath, p := range loadPackages(t) {
		if slices.ContainsFunc(jsonPackages(), func(below string) bool { return pkgPath == below || strings.HasPrefix(pkgPath, below+"/") }) {
			all = append(all, p)
		}
	}
	return all
}

func TestJSONNamesAreExplicit(t *testing.T) {
	t.Parallel()
	c := checkTags(packagesWithJSON(t))
	for field := range c.untagged {
		t.Errorf("%s is encoded under its name in the code: name it in a json tag, so that renaming it does not change the format", field)
	}
	for where := range c.opaque {
		t.Errorf("%s gets to encoding/json, and its type cannot be seen", where)
	}
}

// withoutGolden maps the structs that need no golden file to the reason.
func withoutGolden() map[string]string {
	return map[string]string{
		"cmd/peeklock/internal/cli.statefulSet": "Kubernetes writes it, and it is only read",
		"admin/entity.typedValue":               "TestRuleValuesKeepTheirWrittenForm of admin shows all of its forms",
		"cmd/peeklock/internal/cli.named":       "reads the names alone of what the control API answers",
	}
}

// TestJSONHasGoldenBytes checks that every struct that is encoded as JSON or decoded from it appears
// in a golden file of its package or of another one, either itself or as part of another struct.
func TestJSONHasGoldenBytes(t *testing.T) {
	t.Parallel()
	all := packagesWithJSON(t)
	shown := &tagCheck{structs: map[string]bool{}, untagged: map[string]bool{}}
	for _, p := range all {
		for _, name := range goldenTypes(t, p) {
			shown.fields(name, map[types.Type]bool{})
		}
	}
	exempt := withoutGolden()
	for name := range checkTags(all).structs {
		if _, ok := exempt[name]; !ok && !shown.structs[name] {
			t.Errorf("%s becomes JSON and no golden file shows it: list it in the formats_test.go of its package", name)
		}
		delete(exempt, name)
	}
	for name := range exempt {
		t.Errorf("%s is on the list of exceptions and does not become JSON", name)
	}
}

// goldenTypes returns the types in the formats_test.go of a package.
func goldenTypes(t *testing.T, p *packages.Package) (found []types.Type) {
	t.Helper()
	if len(p.GoFiles) == 0 {
		return nil
	}
	path := filepath.Join(filepath.Dir(p.GoFiles[0]), "formats_test.go")
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Of" {
			ast.Inspect(pair.Value, func(n ast.Node) bool {
				var o types.Object
				switch n := n.(type) {
				case *ast.Ident:
					o = p.Types.Scope().Lookup(n.Name)
				case *ast.SelectorExpr:
					o = imported(p.Types, n)
				}
				if o != nil {
					found = append(found, o.Type())
				}
				return true
			})
		}
		return true
	})
	return found
}

// imported returns the object that a selector names in an imported package.
func imported(p *types.Package, n *ast.SelectorExpr) types.Object {
	for _, other := range p.Imports() {
		if from, ok := n.X.(*ast.Ident); ok && other.Name() == from.Name {
			return other.Scope().Lookup(n.Sel.Name)
		}
	}
	return nil
}
