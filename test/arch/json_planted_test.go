package arch

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestJSONCheckSeesPlantedBugs checks that the check finds each way in which a struct without tags
// reaches encoding/json.
func TestJSONCheckSeesPlantedBugs(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{
		"value":               `func f() { json.Marshal(bare{}) }`,
		"pointer":             `func f() { json.Unmarshal(nil, &bare{}) }`,
		"encoder":             `func f(e *json.Encoder) { e.Encode([]bare{}) }`,
		"decoder":             `func f(d *json.Decoder) { var b map[string]*bare; d.Decode(&b) }`,
		"field":               `func f() { json.Marshal(struct{ In bare ` + "`json:\"in\"`" + ` }{}) }`,
		"embedded":            `func f() { json.Marshal(struct{ bare }{}) }`,
		"only omitted":        `func f() { json.Marshal(struct{ A int ` + "`json:\",omitempty\"`" + ` }{}) }`,
		"element":             `func f() { json.Marshal(map[string]any{"a": []any{bare{}}}) }`,
		"parameter":           `func f() { g(0, bare{}) }; func g(_ int, x any) { h(x) }; func h(x any) { json.Marshal(x) }`,
		"results of a call":   `func f() { g(h()) }; func g(_ int, x any) { json.Marshal(x) }; func h() (int, bare) { return 0, bare{} }`,
		"returned as any":     `func f() { json.Marshal(g()) }; func g() any { return bare{} }`,
		"type parameter":      `func f() { g[bare]() }; func g[T any]() { var x T; json.Unmarshal(nil, &x) }`,
		"inferred":            `func f() { g(func(bare) {}) }; func g[T any](func(T)) { var x T; json.Unmarshal(nil, &x) }`,
		"of a generic type":   `func f() { (&of[bare]{}).g() }; type of[T any] struct{}; func (o *of[T]) g() { var x T; json.Marshal(x) }`,
		"cannot be seen":      `func f() { var x any = bare{}; json.Marshal(x) }`,
		"kept in a variable":  `func f() { g := json.Marshal; g(bare{}) }`,
		"through a parameter": `func f() { func(x any) { json.Marshal(x) }(bare{}) }`,
	} {
		if c := planted(t, code); len(c.untagged)+len(c.opaque) == 0 {
			t.Errorf("%s: not seen", name)
		}
	}
	for name, code := range map[string]string{
		"tagged":         `func f() { json.Marshal(struct{ A int ` + "`json:\"A\"`" + ` }{}) }`,
		"left out":       `func f() { json.Marshal(struct{ A int ` + "`json:\"-\"`" + ` }{}) }`,
		"not exported":   `func f() { json.Marshal(struct{ a int }{}) }`,
		"encodes itself": `func f() { json.Marshal(own{}) }; type own struct{ A int }; func (own) MarshalText() ([]byte, error) { return nil, nil }`,
		"not encoded":    `func f() { g(bare{}) }; func g(any) {}`,
		"any":            `func f() { var x any; json.Unmarshal(nil, &x) }`,
	} {
		if c := planted(t, code); len(c.untagged)+len(c.opaque) > 0 {
			t.Errorf("%s: reported: %v %v", name, c.untagged, c.opaque)
		}
	}
}

// planted runs the check on a package that contains code.
func planted(t *testing.T, code string) *tagCheck {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "planted.go", "package planted\nimport \"encoding/json\"\ntype bare struct{ A int }\nvar _ = json.Valid\n"+code, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &packages.Package{Fset: fset, Syntax: []*ast.File{f}, TypesInfo: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Instances: map[*ast.Ident]types.Instance{},
	}}
	if _, err := (&types.Config{Importer: importer.Default()}).Check(module+"planted", fset, p.Syntax, p.TypesInfo); err != nil {
		t.Fatal(err)
	}
	return checkTags([]*packages.Package{p})
}
