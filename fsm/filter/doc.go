// Package filter says which messages a subscription rule takes, and what the rule
// changes on them.
//
// It holds the three languages of Service Bus rules: SQL filters ([Parse], [Expr]), SQL
// actions ([ParseAction], [Action]) and correlation filters ([Correlation], [Index]).
//
//	text ── lexer ──► tokens ── parser ──► Expr ── Match(Message) ──► True, False, Unknown or an error
//	conditions ─────────────► Correlation ─► Index ── Match(Message) ──► ids of the filters that match
//
// Four things hold everywhere:
//
//   - The same text, parameters and message give the same answer or the same error on every
//     replica, every processor and every release of Go: nothing is random (newid() takes its
//     ids from the message), no Unicode table is consulted, floating point is rounded after
//     each operation, and operands are looked at from left to right.
//   - Parsing and matching are bounded by the constants of limits.go, whatever the text is.
//   - Logic has three values. A user property that is not there is NULL, and what is
//     computed from NULL is unknown; a rule takes a message only if its filter is True.
//   - A parsed filter is immutable: any number of goroutines may match with it.
package filter
