// Package filter evaluates the rules of subscriptions: which messages a rule matches, and what
// its action changes in them.
//
// It holds the three languages of Service Bus rules: SQL filters ([Parse], [Expr]), SQL
// actions ([ParseAction], [Action]) and correlation filters ([Correlation], [Index]). [SelectorSQL]
// translates message selectors of JMS, a dialect of SQL filters, to SQL filters.
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
//   - Logic has three values. A user property that is missing is NULL, and the result of an
//     operation on NULL is unknown; a rule matches a message only if its filter is True.
//   - A parsed filter is immutable: any number of goroutines may match with it.
//
// # Steps
//
// A step is a unit of work. Evaluations count their steps against a budget, so that no filter can
// make one message slow. The number of steps depends on the text and the message only, not on the
// code that evaluates them: replicas of two releases must count alike, or they would not agree on
// which rule has failed. The constants of steps.go are the prices; testdata/steps.txt holds examples
// of all of them. Neither may ever change.
//
//   - A filter takes 32 steps, and 24 more for each operator, constant, parameter and property
//     that is evaluated, from left to right. Parts that cannot change the result any more (after the
//     first TRUE of an OR, the first FALSE of an AND, the first equal element of an IN) are not.
//   - An operator of arithmetic (+ - * / %) takes 24 more.
//   - Finding a property takes 12 more, and 2 for each statement that the action has done before;
//     property(name) takes 8 for each byte of the name.
//   - Comparing two strings takes one step for each 8 bytes of the shorter one, wherever they
//     differ. Binaries and GUIDs take the same.
//   - LIKE takes 64, and for each unit of the pattern (a byte or a wildcard) one step for each block
//     of 64 bytes of the string, counted with one end position: 3,000 for '%word%' and a string of
//     30,000 bytes. In addition it takes 4 for each byte of the string, unless that is the value of
//     a property of 65 bytes or more, and 8 for each byte of a pattern that is not a constant. A
//     pattern that is not UTF-8 takes, instead of the steps for blocks and bytes of the string, 16
//     for each pair of a byte of the pattern and a byte of the string, each with one end position.
//   - Concatenation with + takes 96, one for each 4 bytes of the result, 512 for a decimal operand,
//     and 128 for an integer, boolean or GUID operand; newid() takes 64, and a remainder (%) of
//     decimals 512.
//   - An action takes 32; each statement takes 64, 8 for each byte of the property name, and one
//     for each 4 bytes of the string that it sets. Converting a value to a string takes the same as
//     in a concatenation; converting a string to another type takes 512, and 4 for each byte.
//
// An evaluation that would exceed its budget ends with ErrSteps before it does the work. A filter of
// the greatest length that compares properties with constants takes less than 12,800, the budget of a rule.
package filter
