package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// sinks maps the full names of functions and generic types that pass a value to encoding/json to
// the parameters, type parameters or results that they pass.
type sinks map[string]map[position]bool

type position struct {
	list string // one of parameters, typeParameters, results
	at   int
}

const (
	parameters     = "parameters"
	typeParameters = "type parameters"
	results        = "results"
)

func (s sinks) add(name, list string, at int) {
	if s[name] == nil {
		s[name] = map[position]bool{}
	}
	s[name][position{list, at}] = true
}

func (s sinks) count() (n int) {
	for _, positions := range s {
		n += len(positions)
	}
	return n
}

// encoders returns the sinks that the check starts from.
func encoders() sinks {
	s := sinks{}
	s.add("encoding/json.Marshal", parameters, 0)
	s.add("encoding/json.MarshalIndent", parameters, 0)
	s.add("encoding/json.Unmarshal", parameters, 1)
	s.add("(*encoding/json.Encoder).Encode", parameters, 0)
	s.add("(*encoding/json.Decoder).Decode", parameters, 0)
	s.add("(*github.com/coreos/go-oidc/v3/oidc.IDToken).Claims", parameters, 0)
	return s
}

// tagCheck looks for structs that are passed to encoding/json, and lists the fields whose name in
// the encoding is the one in the code. It follows parameters of type any, type parameters, and
// results of type any back to where the values come from. It does not follow fields of type any, nor
// calls through interfaces and variables; it reports a value whose type it cannot determine.
type tagCheck struct {
	sinks    sinks
	structs  map[string]bool // of the module
	untagged map[string]bool
	opaque   map[string]bool // values whose type the check cannot determine
}

// checkTags checks packages. It repeats the check until it finds no further sink.
func checkTags(all []*packages.Package) *tagCheck {
	known := encoders()
	for {
		before := known.count()
		c := &tagCheck{sinks: known, structs: map[string]bool{}, untagged: map[string]bool{}, opaque: map[string]bool{}}
		for _, p := range all {
			for _, f := range p.Syntax {
				for _, d := range f.Decls {
					c.declaration(p, d)
				}
			}
		}
		if known.count() == before {
			return c
		}
	}
}

// declaration checks one function, or variables and the functions in them.
func (c *tagCheck) declaration(p *packages.Package, d ast.Decl) {
	v := &bodyCheck{tagCheck: c, info: p.TypesInfo, fset: p.Fset, called: map[*ast.Ident]bool{}}
	if f, ok := d.(*ast.FuncDecl); ok {
		v.function, _ = p.TypesInfo.Defs[f.Name].(*types.Func)
	}
	ast.PreorderStack(d, nil, func(n ast.Node, within []ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			v.call(n)
		case *ast.Ident:
			v.name(n)
		case *ast.ReturnStmt:
			if !slices.ContainsFunc(within, func(n ast.Node) bool { _, ok := n.(*ast.FuncLit); return ok }) {
				v.results(n)
			}
		}
		return true
	})
}

// bodyCheck checks the body of a function.
type bodyCheck struct {
	*tagCheck
	info     *types.Info
	fset     *token.FileSet
	function *types.Func // nil outside of a function
	called   map[*ast.Ident]bool
}

// call follows the arguments of a call to a sink.
func (v *bodyCheck) call(n *ast.CallExpr) {
	name := calleeName(n.Fun)
	callee, ok := v.info.Uses[name].(*types.Func)
	if !ok {
		return
	}
	v.called[name] = true
	for where := range v.sinks[callee.FullName()] {
		switch {
		case where.list != parameters:
		case where.at < len(n.Args):
			v.value(n.Args[where.at], v.info.TypeOf(n.Args[where.at]))
		case len(n.Args) == 1: // f(g()), where g has several results
			if tuple, ok := v.info.TypeOf(n.Args[0]).(*types.Tuple); ok && where.at < tuple.Len() {
				v.value(n.Args[0], tuple.At(where.at).Type())
			}
		}
	}
}

// calleeName returns the name of the called function, or nil when it has none.
func calleeName(e ast.Expr) *ast.Ident {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	case *ast.IndexExpr:
		return calleeName(e.X)
	case *ast.IndexListExpr:
		return calleeName(e.X)
	}
	return nil
}

// name checks the type arguments of generic functions and types that encode their type parameters,
// and that a sink is called directly instead of being stored in a variable.
func (v *bodyCheck) name(n *ast.Ident) {
	of := v.sinks[fullName(v.info.Uses[n])]
	instance, generic := v.info.Instances[n]
	for where := range of {
		switch {
		case where.list == typeParameters && generic:
			v.value(n, instance.TypeArgs.At(where.at))
		case where.list == parameters && !v.called[n]:
			v.opaque[v.at(n)] = true
		}
	}
}

// results follows the values that a function returns when its result is encoded.
func (v *bodyCheck) results(n *ast.ReturnStmt) {
	if v.function == nil {
		return
	}
	for where := range v.sinks[v.function.FullName()] {
		if where.list == results && where.at < len(n.Results) {
			v.value(n.Results[where.at], v.info.TypeOf(n.Results[where.at]))
		}
	}
}

func fullName(o types.Object) string {
	switch o := o.(type) {
	case *types.Func:
		return o.FullName()
	case *types.TypeName:
		if o.Pkg() != nil {
			return o.Pkg().Path() + "." + o.Name()
		}
	}
	return ""
}

func (v *bodyCheck) at(e ast.Expr) string {
	return fmt.Sprintf("%s: %s", v.fset.Position(e.Pos()), types.ExprString(e))
}

// value follows a value that is passed to encoding/json.
func (v *bodyCheck) value(e ast.Expr, t types.Type) {
	bare := t
	for {
		pointer, ok := types.Unalias(bare).(*types.Pointer)
		if !ok {
			break
		}
		bare = pointer.Elem()
	}
	if parameter, ok := types.Unalias(bare).(*types.TypeParam); ok {
		if !v.fromTypeParameter(parameter) {
			v.opaque[v.at(e)] = true
		}
		return
	}
	if !types.IsInterface(bare) {
		v.fields(t, map[types.Type]bool{})
		v.elements(e)
		return
	}
	// A pointer to any is decoded into maps and slices.
	if bare == t && !v.info.Types[e].IsNil() && !v.fromParameter(e) && !v.fromCall(e) {
		v.opaque[v.at(e)] = true
	}
}

// fromTypeParameter turns a type parameter of the function, or of the type whose method it is, into
// a sink.
func (v *bodyCheck) fromTypeParameter(t *types.TypeParam) bool {
	if v.function == nil {
		return false
	}
	signature := v.function.Signature()
	for i := range signature.TypeParams().Len() {
		if signature.TypeParams().At(i) == t {
			v.sinks.add(v.function.FullName(), typeParameters, i)
			return true
		}
	}
	for i := range signature.RecvTypeParams().Len() {
		if signature.RecvTypeParams().At(i) != t {
			continue
		}
		receiver := signature.Recv().Type()
		if pointer, ok := receiver.(*types.Pointer); ok {
			receiver = pointer.Elem()
		}
		if named, ok := receiver.(*types.Named); ok {
			v.sinks.add(fullName(named.Obj()), typeParameters, i)
			return true
		}
	}
	return false
}

// fromParameter turns a parameter of the function into a sink.
func (v *bodyCheck) fromParameter(e ast.Expr) bool {
	name, ok := ast.Unparen(e).(*ast.Ident)
	if !ok || v.function == nil {
		return false
	}
	all := v.function.Signature().Params()
	for i := range all.Len() {
		if all.At(i) == v.info.Uses[name] {
			v.sinks.add(v.function.FullName(), parameters, i)
			return true
		}
	}
	return false
}

// fromCall turns the result of the called function into a sink.
func (v *bodyCheck) fromCall(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	callee, ok := v.info.Uses[calleeName(call.Fun)].(*types.Func)
	if !ok || callee.Pkg() == nil || !strings.HasPrefix(callee.Pkg().Path(), module) {
		return false
	}
	if receiver := callee.Signature().Recv(); receiver != nil && types.IsInterface(receiver.Type()) {
		return false
	}
	v.sinks.add(callee.FullName(), results, 0)
	return true
}

// elements checks the values of a map or slice literal whose elements are of type any.
func (v *bodyCheck) elements(e ast.Expr) {
	literal, ok := ast.Unparen(e).(*ast.CompositeLit)
	if !ok {
		return
	}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Value
		}
		if t := v.info.TypeOf(element); t != nil && !types.IsInterface(t) {
			v.fields(t, map[types.Type]bool{})
			v.elements(element)
		}
	}
}

// fields lists the exported fields without explicit names in a type and in the types that it contains.
func (c *tagCheck) fields(t types.Type, seen map[types.Type]bool) {
	if seen[t] || encodesItself(t) {
		return
	}
	seen[t] = true
	switch u := t.Underlying().(type) {
	case interface{ Elem() types.Type }: // a pointer, slice, array or map
		c.fields(u.Elem(), seen)
	case *types.Struct:
		if name := types.TypeString(t, nil); strings.HasPrefix(name, module) {
			c.structs[strings.TrimPrefix(name, module)] = true
		}
		for i := range u.NumFields() {
			field := u.Field(i)
			name, _, _ := strings.Cut(reflect.StructTag(u.Tag(i)).Get("json"), ",")
			if u.Tag(i) == `json:"-"` || !field.Exported() && !field.Embedded() {
				continue
			}
			if name == "" && !field.Embedded() {
				c.untagged[types.TypeString(t, nil)+": "+field.Name()] = true
			}
			c.fields(field.Type(), seen)
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
