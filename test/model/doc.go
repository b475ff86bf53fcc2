// Package model checks models of protocols: it visits every state that a model can reach, breadth first, and finds the shortest
// sequence of actions that breaks an invariant. A model is a Go struct for the state and a function for its actions; the packages
// below hold one each.
//
// A run in `go test` has small bounds; `make model` has those of the table in test/RESULTS.md. A model proves nothing about the code: it shows
// what a rule of the protocol is for, by what happens without it.
package model
