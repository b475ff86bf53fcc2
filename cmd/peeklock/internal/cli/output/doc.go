// Package output prints what commands answer, and shows their progress.
//
// It prints a table for people, or JSON or YAML with the same fields; a [Meter] is drawn on a terminal only. It knows
// nothing of the cluster, and every command prints through it.
//
//	output.go  table, JSON, YAML
//	meter.go   progress on standard error
//	text.go    sizes, times and texts in tables
//
// Invariants:
//
//   - Standard output has results only.
//   - Text of other parties (bodies, names) reaches a terminal only through [Printable].
//
// An [Output] is for one goroutine. [Meter.Add] may be called concurrently.
package output
