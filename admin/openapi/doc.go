// Package openapi describes the control API as an OpenAPI 3.1 document, from its table of operations and, by reflection, from the
// types of its JSON. Package admin serves the document at GET /v1/openapi.json, and a test writes it to docs/openapi.json.
//
// The document is the same for every member of a version, and holds no names and no secrets. The package knows no HTTP and has no
// state; its functions are safe for concurrent use.
package openapi
