// Package input reads requests to the control API: names in the path, parameters, and JSON bodies.
//
// Package admin uses it in every operation. What a request says that is not known is refused, with what is possible: a
// misspelt name must not appear to work. The caller bounds the body.
package input
