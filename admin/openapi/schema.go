package openapi

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
)

// object is a JSON object; encoding/json writes its keys in order.
type object = map[string]any

func reference(section, name string) object {
	return object{"$ref": "#/components/" + section + "/" + name}
}

// schemas are the schemas of the types of bodies and answers, each struct by its name.
type schemas struct {
	components object
	types      map[string]reflect.Type
	special    map[reflect.Type]object // types that write their JSON themselves
}

func newSchemas() *schemas {
	return &schemas{components: object{}, types: make(map[string]reflect.Type), special: map[reflect.Type]object{
		reflect.TypeFor[time.Time]():         {"type": "string", "format": "date-time"},
		reflect.TypeFor[time.Duration]():     {"type": "integer", "format": "int64", "description": "nanoseconds"},
		reflect.TypeFor[[]byte]():            {"type": "string", "contentEncoding": "base64"},
		reflect.TypeFor[json.RawMessage]():   {"type": "object"},
		reflect.TypeFor[entity.Duration]():   {"type": "string", "description": `a duration such as "30s" or "PT30S", or "forever"`},
		reflect.TypeFor[entity.Value]():      {"description": "null, a boolean, a number or a text; or an object with type (guid, time, duration, binary, double or int) and value"},
		reflect.TypeFor[jsonmessage.Value](): {"description": `null, a boolean or a text; or an object whose key names the AMQP type, such as {"int": 7}`},
	}}
}

// of returns the schema of a value. In that of a request no field is required: what is omitted stays or has its default.
func (s *schemas) of(value any, isRequest bool) (object, error) {
	return s.ofType(reflect.TypeOf(value), isRequest)
}

func (s *schemas) ofType(t reflect.Type, isRequest bool) (object, error) {
	if known, ok := s.special[t]; ok {
		return known, nil
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return nil, fmt.Errorf("%s writes its JSON itself: describe it", t)
	}
	switch t.Kind() { //nolint:exhaustive // the others have no form in the API
	case reflect.Pointer:
		return s.ofType(t.Elem(), isRequest)
	case reflect.String:
		return object{"type": "string"}, nil
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}, nil
	case reflect.Float64:
		return object{"type": "number"}, nil
	case reflect.Slice:
		items, err := s.ofType(t.Elem(), isRequest)
		return object{"type": "array", "items": items}, err
	case reflect.Map:
		values, err := s.ofType(t.Elem(), isRequest)
		return object{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return s.ofStruct(t, isRequest)
	}
	return nil, fmt.Errorf("%s has no form in JSON", t)
}

// ofStruct returns a reference to the schema of a struct, which it adds.
func (s *schemas) ofStruct(t reflect.Type, isRequest bool) (object, error) {
	name := map[string]string{"jsonmessage": "AMQP", "topology": "Cluster"}[path.Base(t.PkgPath())] + t.Name()
	if isRequest {
		name += "Body" // the answers of a type have all of its fields
	}
	name = strings.Replace(name, "RequestBody", "Request", 1)
	if known, ok := s.types[name]; ok && known != t {
		return nil, fmt.Errorf("%s and %s are both called %s", t, known, name)
	} else if ok {
		return reference("schemas", name), nil
	}
	s.types[name] = t
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		schema, err := s.ofType(f.t, isRequest)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.name, err)
		}
		properties[f.name] = schema
		if !f.optional && !isRequest {
			required = append(required, f.name)
		}
	}
	described := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		described["required"] = required
	}
	s.components[name] = described
	return reference("schemas", name), nil
}

// field is a field of a JSON object.
type field struct {
	name     string
	t        reflect.Type
	optional bool
	depth    int
}

// fieldsOf returns the fields of a struct as encoding/json sees them: those of embedded structs are its own, and the outer one
// wins.
func fieldsOf(t reflect.Type) []field {
	found := make(map[string]field)
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if known, ok := found[name]; ok && known.depth <= len(f.Index) {
			continue
		}
		found[name] = field{name, f.Type, strings.Contains(options, "omit"), len(f.Index)}
	}
	list := make([]field, 0, len(found))
	for _, f := range found {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return list
}
