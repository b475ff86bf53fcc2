package arch

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// withoutGolden maps the structs that need no golden file to the reason.
func withoutGolden() map[string]string {
	return map[string]string{
		"cmd/peeklock/internal/cli/kubernetes.statefulSet": "Kubernetes writes it, and it is only read",
		"cmd/peeklock/internal/cli/declare.configEntity":   "one call writes it and reads it again, as a Config.json",
		"admin/entity.typedValue":                          "TestRuleValuesKeepTheirWrittenForm of admin/api shows all of its forms",
	}
}

// TestJSONHasGoldenBytes checks that every struct with a json tag appears in the golden file of a package, either itself or
// as part of another struct. The linter musttag finds fields without a tag.
func TestJSONHasGoldenBytes(t *testing.T) {
	t.Parallel()
	shown, all := &jsonStructs{names: map[string]bool{}}, &jsonStructs{names: map[string]bool{}}
	for name, p := range loadPackages(t) {
		if importerName(name) == "test" {
			continue
		}
		for _, of := range goldenTypes(t, p) {
			shown.add(of)
		}
		for _, of := range taggedTypes(p) {
			all.add(of)
		}
	}
	if len(all.names) < jsonStructsMin {
		t.Errorf("only %d structs found, want at least %d", len(all.names), jsonStructsMin)
	}
	exempt := withoutGolden()
	for name := range all.names {
		if _, ok := exempt[name]; !ok && !shown.names[name] {
			t.Errorf("%s has json tags and no golden file shows it: list it in the formats_test.go of its package", name)
		}
		delete(exempt, name)
	}
	for name := range exempt {
		t.Errorf("%s is on the list of exceptions and has no json tags", name)
	}
}

// jsonStructsMin guards against a check that finds no structs.
const jsonStructsMin = 100

// taggedTypes returns the structs of a package that have a json tag.
func taggedTypes(p *packages.Package) (found []types.Type) {
	for _, o := range p.TypesInfo.Defs {
		name, ok := o.(*types.TypeName)
		if !ok {
			continue
		}
		if s, ok := name.Type().Underlying().(*types.Struct); ok {
			for i := range s.NumFields() {
				if _, ok := reflect.StructTag(s.Tag(i)).Lookup("json"); ok {
					found = append(found, name.Type())
					break
				}
			}
		}
	}
	return found
}

// jsonStructs collects the structs of the module in types that become JSON.
type jsonStructs struct {
	names map[string]bool
	seen  map[types.Type]bool
}

func (c *jsonStructs) add(t types.Type) {
	t = types.Unalias(t)
	if c.seen[t] || encodesItself(t) {
		return
	}
	if c.seen == nil {
		c.seen = map[types.Type]bool{}
	}
	c.seen[t] = true
	switch u := t.Underlying().(type) {
	case interface{ Elem() types.Type }: // a pointer, slice, array or map
		c.add(u.Elem())
	case *types.Struct:
		if name := types.TypeString(t, nil); strings.HasPrefix(name, module) {
			c.names[strings.TrimPrefix(name, module)] = true
		}
		for i := range u.NumFields() {
			field := u.Field(i)
			if u.Tag(i) != `json:"-"` && (field.Exported() || field.Embedded()) {
				c.add(field.Type())
			}
		}
	}
}

// encodesItself says whether a type, or the pointer to it, has its own encoding.
func encodesItself(t types.Type) bool {
	for _, name := range []string{"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"} {
		if m, _, _ := types.LookupFieldOrMethod(t, true, nil, name); m != nil {
			if _, isMethod := m.(*types.Func); isMethod {
				return true
			}
		}
	}
	return false
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
