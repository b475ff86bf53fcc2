// Package document compares the generated documents of docs/ with the code, and rewrites them.
//
// Callers are tests beside the code that a document describes; their names begin with TestDocs. Run
// `make docs` to rewrite all generated documents. The package does not know the content of a document.
//
// The package writes nothing without -update, and never changes text outside of a generated section.
package document
