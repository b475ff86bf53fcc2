// Package budget divides one number of bytes among the connections of a process. Each
// connection has an Account and reports with Set how much it holds; the Budget decides which
// connections hold too much when their sum is near the limit. It knows no protocol: it only
// counts, compares and reports levels.
//
// Nothing is enforced while memory is plentiful. From CreditPercent of the limit on, the
// budget is divided: first among the owners (a namespace and a key), then the part of each
// owner among its connections. An account that holds less than an equal part leaves the rest
// to the others (max-min fairness), so one number of bytes, the fair share, separates the
// accounts that hold too much from the rest. Accounts above it get a Level that rises with
// the sum of all accounts; the others are not affected. If all together hold more than a
// percentage of the limit, at least one holds more than its fair share of that percentage, so
// there is always an account to restrict.
//
// Unauthenticated connections share a small pool of their own in the same way, all as one
// owner.
package budget
