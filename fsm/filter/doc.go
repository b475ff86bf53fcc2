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
//   - Parsing is bounded by the constants of limits.go, whatever the text is, and matching by a
//     budget of steps.
//   - Logic has three values. A user property that is not there is NULL, and what is
//     computed from NULL is unknown; a rule takes a message only if its filter is True.
//   - A parsed filter is immutable: any number of goroutines may match with it.
//
// # Steps
//
// How much an evaluation may do is counted in steps, so that one message never takes long,
// however its filters are made. Steps are a matter of the text and the message, not of the code
// that evaluates them: replicas of two releases count alike, or they would not agree on which
// rule has failed. The numbers are the constants of steps.go; testdata/steps.txt holds
// examples of all of them, which never change.
//
//   - A filter takes 32 steps and 24 more for each operator, constant, parameter and property
//     that is looked at, from left to right. What cannot change the result any more (behind the
//     first TRUE of an OR, the first FALSE of an AND, the first equal one of an IN) is not.
//   - Finding a property takes 12 more, and 2 for each statement that the action did before;
//     property(name) 8 for each byte of the name.
//   - Comparing two strings takes one for each 8 bytes of the shorter one, wherever they differ;
//     so do binaries and GUIDs.
//   - LIKE takes 64, and for each unit of the pattern (a byte, or a wildcard) one for each 64 bytes
//     of the string that were begun, its end included: 3,000 for '%word%' and a string of 30,000
//     bytes. Unless the string is a property of 65 bytes or more, 4 for each of its bytes; of a
//     pattern that is no constant, 8 for each byte of it. A pattern that is not UTF-8 takes 16 for
//     each pair of a byte of it and one of the string, their ends included.
//   - A string made by + takes 96, one for each 4 bytes, 512 for a decimal in it, and 128 for an
//     integer, a boolean or a GUID; newid() takes 64, and a remainder of decimals 512.
//   - An action takes 32; each statement 64, 8 for each byte of the name that it is about, and
//     one for each 4 bytes of the string that it sets. Giving a value another type takes what
//     writing it into a string does, and 512 and 4 for each byte the other way.
//
// An evaluation that takes more than its budget ends with ErrSteps before it does the work. A text
// of the longest length that compares properties with numbers and short strings takes less than 16,384.
package filter
