package openapi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/operation"
)

// nameSummary describes the parameter in paths.
const nameSummary = "Name of the entity, namespace, member or partition. That of a subscription is TOPIC/Subscriptions/NAME; slashes are written as they are, or as %2F."

// intro describes the document.
const intro = "Entities, messages, keys and members of a Peeklock cluster, for scripts. Every member answers. " +
	"Unknown fields and parameters are refused. An answer other than 2xx is a Problem; after 503 the request can be repeated, and after 504 its outcome is unknown."

// Document returns the description of the operations. Errors are those of the table: a type without a JSON form, or a name that
// appears twice.
func Document(operations []operation.Operation) ([]byte, error) {
	s := newSchemas()
	problem, err := s.of(api.Problem{}, false)
	if err != nil {
		return nil, err
	}
	paths, names := object{}, make(map[string]bool)
	for i := range operations {
		o := &operations[i]
		if names[o.Name] {
			return nil, fmt.Errorf("describe %s: the name appears twice", o.Name)
		}
		names[o.Name] = true
		described, err := s.operation(o)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", o.Name, err)
		}
		path := strings.Replace(o.Path(), "{name...}", "{name}", 1)
		methods, ok := paths[path].(object)
		if !ok {
			methods = object{}
			paths[path] = methods
		}
		methods[strings.ToLower(o.Method())] = described
	}
	document := object{
		"openapi": "3.1.0",
		"info":    object{"title": "Peeklock control API", "version": "1", "description": intro, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []any{object{"url": "http://localhost:5300", "description": "a member on this machine"}},
		"paths":   paths,
		"components": object{
			"schemas":   s.components,
			"responses": object{"Problem": object{"description": "The request is refused or has failed.", "content": content(problem)}},
			"parameters": object{
				"name":      object{"name": "name", "in": "path", "required": true, "description": nameSummary, "schema": object{"type": "string"}},
				"namespace": object{"name": "namespace", "in": "query", "description": "Name of the namespace; without it the host of the request selects one.", "schema": object{"type": "string"}},
			},
			"securitySchemes": object{
				"signature": object{"type": "apiKey", "in": "header", "name": "Authorization", "description": "SharedAccessSignature sr=...&sig=...&se=...&skn=..."},
				"token":     object{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
			},
		},
		"security": []any{object{"signature": []any{}}, object{"token": []any{}}, object{}},
	}
	out, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode description: %w", err)
	}
	return append(out, '\n'), nil
}

// content is that of a body in JSON.
func content(schema any) object { return object{"application/json": object{"schema": schema}} }

// operation describes one operation.
func (s *schemas) operation(o *operation.Operation) (object, error) {
	parameters := []any{reference("parameters", "namespace")}
	if strings.Contains(o.Path(), "{name") {
		parameters = append(parameters, reference("parameters", "name"))
	}
	for i := range o.Query {
		parameters = append(parameters, describeParameter(&o.Query[i]))
	}
	responses := object{"default": reference("responses", "Problem")}
	for _, status := range o.Succeeds() {
		answer, err := s.answer(o)
		if err != nil {
			return nil, err
		}
		responses[strconv.Itoa(status)] = answer
	}
	described := object{
		"operationId": o.Name, "summary": o.Summary, "description": "Required right: " + o.Right.String() + ".", "parameters": parameters, "responses": responses,
	}
	if o.Body != nil {
		schema, err := s.of(o.Body, true)
		if err != nil {
			return nil, err
		}
		described["requestBody"] = object{"content": content(schema)}
	}
	return described, nil
}

// answer describes the answer of success.
func (s *schemas) answer(o *operation.Operation) (object, error) {
	switch o.Answer.(type) {
	case nil:
		return object{"description": "Done."}, nil
	case []byte:
		return object{"description": "The file.", "content": object{"application/octet-stream": object{}}}, nil
	}
	schema, err := s.of(o.Answer, false)
	if err == nil && o.One != nil {
		var one any
		one, err = s.of(o.One, false)
		schema = object{"anyOf": []any{schema, one}}
	}
	if o.Streams {
		return object{"description": "Lines, each a JSON object.", "content": object{"application/x-ndjson": object{"schema": schema}}}, err
	}
	return object{"description": "Done.", "content": content(schema)}, err
}

func describeParameter(p *operation.Parameter) object {
	schema := object{"type": p.Type}
	if p.Format != "" {
		schema["format"] = p.Format
	}
	if p.Type == "integer" {
		schema["minimum"], schema["maximum"], schema["default"] = p.Least, p.Greatest, p.Normal
	}
	described := object{"name": p.Name, "in": "query", "description": p.Summary, "schema": schema}
	if p.Required {
		described["required"] = true
	}
	return described
}
