package arm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// deploymentType is the type of nested deployments, which Bicep writes for modules.
const deploymentType = "Microsoft.Resources/deployments"

// Resource is a resource of a template, with the values of its expressions.
type Resource struct {
	Type       string   // such as Microsoft.ServiceBus/namespaces/queues, as the template writes it
	Names      []string // those of its parents, then its own; the first may be "" if only a deployment knows it
	Properties map[string]any
}

// reader evaluates a template.
type reader struct {
	prefix string // of the types of the resources that are wanted, in lower case
	steps  int
	found  []Resource
}

// failed is the value of a parameter that cannot be evaluated.
type failed struct{ err error }

// scope is what the expressions of one template see.
type scope struct {
	*reader
	given       map[string]any // values of parameters
	parameters  map[string]any // of the template
	variables   map[string]any
	loops       map[string]int64 // index of each loop, by name; "" is that of the resource
	depth       int
	nestedDepth int
}

// Read returns the resources whose types begin with a prefix, in the order of the template. parameters are the values of its
// parameters; the others have their defaults. Errors name the resource and the expression that is not supported.
func Read(text []byte, prefix string, parameters map[string]string) ([]Resource, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	declared, _ := tree["parameters"].(map[string]any)
	given := make(map[string]any)
	for name, value := range parameters {
		p, found := property(declared, name)
		if !found {
			return nil, fmt.Errorf("the template has no parameter %q", name)
		}
		about, _ := p.(map[string]any)
		var err error
		if given[strings.ToLower(name)], err = parameterValue(about, value); err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	r := &reader{prefix: strings.ToLower(prefix)}
	err := r.template(tree, given, 0)
	return r.found, err
}

// parameterValue reads the value of a parameter of the command line: a text, or JSON for the other types.
func parameterValue(about map[string]any, text string) (any, error) {
	if kind, _ := about["type"].(string); strings.EqualFold(strings.TrimPrefix(strings.ToLower(kind), "secure"), "string") {
		return text, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("%.60q is no JSON of type %s: %w", text, about["type"], err)
	}
	return plain(value), nil
}

// plain replaces numbers by int64 and float64.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}

// template reads the resources of one template. given are the values of its parameters, by name in lower case.
func (r *reader) template(tree, given map[string]any, nested int) error {
	if nested > depthMax {
		return fmt.Errorf("deployments are nested more than %d times", depthMax)
	}
	s := scope{reader: r, given: given, loops: map[string]int64{}, nestedDepth: nested}
	s.parameters, _ = plain(tree["parameters"]).(map[string]any)
	s.variables, _ = plain(tree["variables"]).(map[string]any)
	return s.resources(tree["resources"], "", nil)
}

// resources reads a list of resources, or an object of them by symbolic names. They belong to the resource of a type and names.
func (s scope) resources(tree any, parent string, names []string) error {
	list, _ := tree.([]any)
	if object, ok := tree.(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			list = append(list, object[name])
		}
	}
	for _, element := range list {
		resource, ok := element.(map[string]any)
		if !ok {
			return errors.New("a resource is an object")
		}
		kind, _ := resource["type"].(string)
		if parent != "" && !strings.HasPrefix(strings.ToLower(kind), strings.ToLower(parent)+"/") {
			kind = parent + "/" + kind
		}
		if err := s.copies(resource, kind, names); err != nil {
			return fmt.Errorf("%s %v: %w", kind, printable(resource["name"]), err)
		}
	}
	return nil
}

// printable returns the name of a resource as the template writes it.
func printable(name any) string { return fmt.Sprintf("%.200v", name) }

// copies reads a resource, once for each turn of its loop.
func (s scope) copies(resource map[string]any, kind string, parents []string) error {
	loop, repeated := resource["copy"].(map[string]any)
	if !repeated {
		return s.resource(resource, kind, parents)
	}
	name, _ := loop["name"].(string)
	count, err := s.count(loop["count"])
	for i := int64(0); i < count && err == nil; i++ {
		inner := s.turn(name, i)
		inner.loops[""] = i
		err = inner.resource(resource, kind, parents)
	}
	return err
}

// turn returns the scope of one turn of a loop.
func (s scope) turn(name string, index int64) scope {
	s.loops = maps.Clone(s.loops)
	s.loops[strings.ToLower(name)] = index
	return s
}

// count returns the number of turns of a loop.
func (s scope) count(tree any) (int64, error) {
	value, err := s.value(plain(tree))
	count, ok := value.(int64)
	switch {
	case err != nil:
		return 0, err
	case isUnknown(value):
		return 0, unknownError(value.(string)) //nolint:forcetypeassert // it is a text
	case !ok || count < 0 || count > copiesMax:
		return 0, fmt.Errorf("copy has a count from 0 to %d, not %.60v", copiesMax, value)
	}
	return count, nil
}

// resource reads one resource and those that belong to it.
func (s scope) resource(resource map[string]any, kind string, parents []string) error {
	isWanted := strings.HasPrefix(strings.ToLower(kind), s.prefix)
	isDeployment := strings.EqualFold(kind, deploymentType)
	children := resource["resources"]
	isAncestor := children != nil && strings.HasPrefix(s.prefix, strings.ToLower(kind)+"/")
	if existing, _ := resource["existing"].(bool); existing || !isWanted && !isDeployment && !isAncestor {
		return nil
	}
	if written, has := resource["condition"]; has {
		value, err := s.value(plain(written))
		if err == nil && isUnknown(value) {
			err = unknownError(value.(string)) //nolint:forcetypeassert // it is a text
		}
		if err != nil || value != true {
			return err
		}
	}
	if isDeployment {
		properties, _ := resource["properties"].(map[string]any)
		return s.deployment(properties)
	}
	value, err := s.value(resource["name"])
	text, ok := value.(string)
	if err != nil || !ok {
		return errors.Join(err, mustBe(ok, "a text as its name"))
	}
	names := slices.Concat(parents, splitName(text))
	if isWanted {
		properties, err := s.value(plain(resource["properties"]))
		if err != nil {
			return err
		}
		of, _ := properties.(map[string]any)
		if err := s.add(kind, slices.Clone(names), of); err != nil {
			return err
		}
	}
	return s.resources(children, kind, names)
}

// add keeps a resource, unless something of it is unknown.
func (s scope) add(kind string, names []string, properties map[string]any) error {
	for i, name := range names {
		if !isUnknown(name) {
			continue
		}
		if i > 0 {
			return unknownError(name)
		}
		names[0] = ""
	}
	if len(names) != strings.Count(kind, "/") {
		return fmt.Errorf("the name has %d parts, and the type has %d", len(names), strings.Count(kind, "/"))
	}
	s.found = append(s.found, Resource{kind, names, properties})
	return checkKnown("properties", properties)
}

// checkKnown returns an error for a value that is unknown.
func checkKnown(path string, value any) error {
	switch v := value.(type) {
	case string:
		if isUnknown(v) {
			return fmt.Errorf("%s: %w", path, unknownError(v))
		}
	case []any:
		for i := range v {
			if err := checkKnown(fmt.Sprintf("%s[%d]", path, i), v[i]); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := checkKnown(path+"."+key, v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// splitName divides a name at its slashes, outside of what is unknown.
func splitName(text string) (parts []string) {
	part := ""
	for i, piece := range strings.Split(text, mark) {
		if i%2 == 1 {
			part += unknown(piece)
			continue
		}
		known := strings.Split(piece, "/")
		for _, more := range known[:len(known)-1] {
			parts, part = append(parts, part+more), ""
		}
		part += known[len(known)-1]
	}
	return append(parts, part)
}

// deployment reads the template of a nested deployment, with parameters of their own.
func (s scope) deployment(properties map[string]any) error {
	inner, ok := properties["template"].(map[string]any)
	if !ok {
		return errors.New("a linked template is not read: only one that is in the file")
	}
	options, _ := properties["expressionEvaluationOptions"].(map[string]any)
	if where, _ := options["scope"].(string); !strings.EqualFold(where, "inner") { // it sees what the outer template sees
		return s.resources(inner["resources"], "", nil)
	}
	given := make(map[string]any)
	passed, _ := properties["parameters"].(map[string]any)
	for name, p := range passed {
		about, err := s.value(plain(p))
		if err != nil {
			given[strings.ToLower(name)] = failed{err} // a module has parameters for more than what is read of it
		} else if of, _ := about.(map[string]any); of != nil {
			value, has := of["value"]
			if !has {
				value = unknown("parameters('" + name + "')")
			}
			given[strings.ToLower(name)] = value
		}
	}
	return s.template(inner, given, s.nestedDepth+1)
}

// value returns a value of the template with its expressions evaluated.
func (s scope) value(tree any) (any, error) {
	if s.steps++; s.steps > stepsMax {
		return nil, fmt.Errorf("the template has more than %d values with those of its loops", stepsMax)
	}
	if s.depth++; s.depth > depthMax {
		return nil, fmt.Errorf("values refer to each other more than %d times", depthMax)
	}
	switch v := tree.(type) {
	case string:
		inner, begins := strings.CutPrefix(v, "[")
		inner, ends := strings.CutSuffix(inner, "]")
		switch {
		case strings.HasPrefix(v, "[["):
			return v[1:], nil
		case !begins || !ends:
			return v, nil
		}
		parsed, err := parse(inner)
		if err != nil {
			return nil, err
		}
		return s.evaluate(parsed)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = s.value(v[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		return s.object(v)
	}
	return tree, nil
}

func (s scope) object(tree map[string]any) (any, error) {
	object := make(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if loops, ok := tree[key].([]any); ok && key == "copy" {
			if err := s.loopProperties(loops, object); err != nil {
				return nil, err
			}
			continue
		}
		value, err := s.value(tree[key])
		if err != nil {
			return nil, err
		}
		object[key] = value
	}
	return object, nil
}

// loopProperties adds the lists that loops of properties make.
func (s scope) loopProperties(loops []any, object map[string]any) error {
	for _, each := range loops {
		loop, _ := each.(map[string]any)
		name, _ := loop["name"].(string)
		list, err := s.loop(loop, name)
		if err != nil {
			return err
		}
		object[name] = list
	}
	return nil
}

// loop returns the list that a loop of a property or a variable makes.
func (s scope) loop(loop map[string]any, name string) ([]any, error) {
	count, err := s.count(loop["count"])
	list := make([]any, count)
	for i := int64(0); i < count && err == nil; i++ {
		list[i], err = s.turn(name, i).value(loop["input"])
	}
	return list, err
}

// evaluate returns the value of an expression.
func (s scope) evaluate(tree any) (any, error) {
	if s.steps++; s.steps > stepsMax {
		return nil, fmt.Errorf("the template has more than %d values with those of its loops", stepsMax)
	}
	switch e := tree.(type) {
	case access:
		of, err := s.evaluate(e.of)
		if err != nil {
			return nil, err
		}
		key, err := s.evaluate(e.key)
		switch {
		case err != nil:
			return nil, err
		case isUnknown(of) || isUnknown(key):
			return unknown(e.text), nil
		}
		value, err := member(of, key)
		if err != nil {
			return nil, fmt.Errorf("[%s]: the value %w", e.text, err)
		}
		return value, nil
	case call:
		return s.call(e)
	}
	return tree, nil
}

// call evaluates a function: first those that do not evaluate all arguments, or that read the template.
func (s scope) call(c call) (any, error) {
	name := strings.ToLower(c.function)
	switch name {
	case "if", "and", "or", "coalesce":
		return s.choose(name, c)
	}
	if slices.Contains(inAzure, name) {
		return unknown(c.text), nil
	}
	values := make([]any, len(c.arguments))
	for i := range values {
		var err error
		if values[i], err = s.evaluate(c.arguments[i]); err != nil {
			return nil, err
		}
	}
	var value any
	var err error
	switch function, known := functions[name]; {
	case name == "parameters" || name == "variables":
		value, err = s.lookUp(name, textOf(argument(values, 0)))
	case name == "copyindex":
		value, err = s.copyIndex(values)
	case !known:
		err = fmt.Errorf("the function %s is not supported", c.function)
	case slices.ContainsFunc(values, isUnknown) && !slices.Contains(passing, name):
		return unknown(c.text), nil
	default:
		value, err = function(values)
	}
	if err != nil {
		return nil, fmt.Errorf("[%s]: %w", c.text, err)
	}
	return value, nil
}

// choose evaluates the arguments of a condition until one decides.
func (s scope) choose(name string, c call) (any, error) {
	var last any
	for i, argument := range c.arguments {
		value, err := s.evaluate(argument)
		if err != nil || name != "coalesce" && isUnknown(value) {
			return value, err
		}
		switch {
		case name == "if":
			if len(c.arguments) != 3 {
				return nil, fmt.Errorf("[%s]: if has three arguments", c.text)
			}
			if value == true {
				return s.evaluate(c.arguments[1])
			}
			return s.evaluate(c.arguments[2])
		case name == "coalesce" && value != nil, name == "and" && value == false, name == "or" && value == true, i == len(c.arguments)-1:
			return value, nil
		}
		last = value
	}
	return last, nil
}

// copyIndex is copyIndex(), copyIndex(offset), copyIndex(name) or copyIndex(name, offset).
func (s scope) copyIndex(values []any) (any, error) {
	name, named := argument(values, 0).(string)
	if named {
		values = values[1:]
	}
	offset, _ := argument(values, 0).(int64)
	index, found := s.loops[strings.ToLower(name)]
	return index + offset, mustBe(found, "a loop of that name around it")
}

// lookUp returns the value of a parameter or a variable.
func (s scope) lookUp(kind, name string) (any, error) {
	if kind == "variables" {
		s.loops = map[string]int64{}
		if tree, found := property(s.variables, name); found {
			return s.value(tree)
		}
		loops, _ := s.variables["copy"].([]any)
		for _, each := range loops {
			if loop, _ := each.(map[string]any); loop != nil && strings.EqualFold(textOf(loop["name"]), name) {
				return s.loop(loop, textOf(loop["name"]))
			}
		}
		return nil, errors.New("the template has no such variable")
	}
	if value, found := s.given[strings.ToLower(name)]; found {
		if f, ok := value.(failed); ok {
			return nil, f.err
		}
		return value, nil
	}
	tree, found := property(s.parameters, name)
	about, ok := tree.(map[string]any)
	if !found || !ok {
		return nil, errors.New("the template has no such parameter")
	}
	if standard, has := about["defaultValue"]; has {
		s.loops = map[string]int64{}
		return s.value(standard)
	}
	if nullable, _ := about["nullable"].(bool); nullable {
		return nil, nil
	}
	return unknown("parameters('" + name + "')"), nil
}
