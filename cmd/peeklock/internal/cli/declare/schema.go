package declare

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/peeklock/peeklock/admin/entity"
)

// object is a JSON object; encoding/json writes its keys in order.
type object = map[string]any

// schemaID names the schema for editors.
const schemaID = "https://github.com/peeklock/peeklock/raw/main/docs/entities.schema.json"

// described are the keys that are no settings, by their type and name.
var described = map[string]string{ //nolint:gochecknoglobals // never changed
	"Document.keys":       "access keys of the namespace",
	"Document.queues":     "queues of the namespace",
	"Document.topics":     "topics of the namespace",
	"Queue.name":          "letters, digits and . - _ ~ /, at most 260",
	"Queue.keys":          "access keys of the queue",
	"Topic.name":          "letters, digits and . - _ ~ /, at most 260",
	"Topic.keys":          "access keys of the topic",
	"Topic.subscriptions": "subscriptions of the topic",
	"Subscription.name":   "letters, digits and . - _ ~, at most 50; without the topic",
	"Subscription.rules":  "rules of the subscription; with some, the rule $Default goes unless they name it",
	"Key.name":            "1 to 256 bytes of text",
	"Key.rights":          "what the key allows; Manage includes the other two",
	"Key.primaryKey":      "secret of 16 to 256 bytes; generated if it is not given, and kept if the key exists",
	"Key.secondaryKey":    "secret of 16 to 256 bytes; generated if it is not given, and kept if the key exists",
	"Rule.name":           "1 to 50 characters",
	"Rule.filter":         "which messages of the topic match",
	"Rule.action":         "how the copies of matching messages are changed",
	"Filter.kind":         "kind of the filter",
	"Filter.expression":   "condition in SQL, of a filter of kind sql",
	"Filter.parameters":   "values of the parameters of the expression, by name without @",
	"Filter.conditions":   "the value that each property must have, of a filter of kind correlation; sys.Label and so on are properties of Service Bus",
	"SQLText.expression":  "statements in SQL, such as SET region = 'eu'",
	"SQLText.parameters":  "values of the parameters of the expression, by name without @",
}

// choices are the values of texts that are no settings.
var choices = map[string][]string{ //nolint:gochecknoglobals // never changed
	"Key.rights":  {entity.RightSend, entity.RightListen, entity.RightManage},
	"Filter.kind": {entity.FilterSQL, entity.FilterCorrelation, entity.FilterTrue, entity.FilterFalse},
}

// schemaText returns the JSON schema of a document.
func schemaText() ([]byte, error) {
	definitions := object{}
	root, err := structSchema(reflect.TypeFor[Document](), definitions)
	if err != nil {
		return nil, err
	}
	root["$schema"], root["$id"] = "https://json-schema.org/draft/2020-12/schema", schemaID
	root["title"], root["$defs"] = "Entities of a Peeklock namespace, for peeklock apply", definitions
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

// structSchema returns the schema of a mapping, and adds those of the mappings in it to the definitions.
func structSchema(t reflect.Type, definitions object) (object, error) {
	fields, required := object{}, []string{}
	kind := kinds[t]
	for _, p := range properties(t) {
		schema, err := typeSchema(p.of, choices[t.Name()+"."+p.name], definitions)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, p.name, err)
		}
		text, known := described[t.Name()+"."+p.name]
		switch {
		case p.setting != nil:
			text = p.setting.Usage(kind)
			if p.setting.Choices != nil {
				schema["enum"] = p.setting.Choices
			}
		case !known:
			return nil, fmt.Errorf("%s.%s has no description", t, p.name)
		}
		schema["description"] = text
		fields[p.name] = schema
		if p.required {
			required = append(required, p.name)
		}
	}
	of := object{"type": "object", "additionalProperties": false, "properties": fields}
	if len(required) > 0 {
		of["required"] = required
	}
	return of, nil
}

// typeSchema returns the schema of a value, for texts with the values that they may have.
func typeSchema(t reflect.Type, values []string, definitions object) (object, error) {
	switch t {
	case reflect.TypeFor[entity.Duration]():
		return object{"type": "string"}, nil
	case reflect.TypeFor[entity.Value]():
		return object{"type": []string{"null", "boolean", "number", "string", "object"}}, nil
	}
	switch t.Kind() { //nolint:exhaustive // a document has no others
	case reflect.Pointer:
		return typeSchema(t.Elem(), values, definitions)
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.Uint32:
		return object{"type": "integer", "minimum": 0}, nil
	case reflect.String:
		of := object{"type": "string"}
		if values != nil {
			of["enum"] = values
		}
		return of, nil
	case reflect.Slice:
		items, err := typeSchema(t.Elem(), values, definitions)
		return object{"type": "array", "items": items}, err
	case reflect.Map:
		items, err := typeSchema(t.Elem(), values, definitions)
		return object{"type": "object", "additionalProperties": items}, err
	case reflect.Struct:
		if _, known := definitions[t.Name()]; !known {
			of, err := structSchema(t, definitions)
			if err != nil {
				return nil, err
			}
			definitions[t.Name()] = of
		}
		return object{"$ref": "#/$defs/" + t.Name()}, nil
	}
	return nil, fmt.Errorf("%s has no schema", t)
}
