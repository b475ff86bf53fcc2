// Package budget divides one number of bytes among the connections of a process. Each
// connection has an Account and says with Set what it holds; the Budget decides which of
// them have too much when all together are near the limit. It knows no protocol: it only counts,
// compares and reports levels.
//
// Nothing is enforced while memory is plentiful. From CreditPercent of the limit on, the
// budget is divided: first among the owners (a namespace and a key), then what an owner gets
// among its connections. An account below an equal part leaves the rest to the others
// (max-min fairness), so there is one number of bytes, the fair share, that divides accounts
// with too much from the rest. Those above it are put on a Level that rises with what all
// hold together; the others are not affected. If all together hold more than a percentage of
// the limit, at least one holds more than its fair share of that percentage, so there is always
// an account to restrict.
//
// Unauthenticated connections share a small pool of their own in the same way, all as one
// owner.
package budget
