// Package abuse runs attacks of hostile clients against three real members while honest clients
// work.
//
// Each attack is a value of the type attack, in a file by topic. The table in attacks_test.go
// lists all of them with the limit that stops each. TestAbuse runs each against one cluster
// and asserts four things: the resident memory of every member stays below its limit, no member
// ends or panics, honest clients make progress and see no error, and members release everything
// that they held for the attackers after these have gone.
//
// `make abuse` runs them at full size and also asserts how long honest clients wait: their 99th
// percentile with the attack is at most twice that with the same attackers aimed at a sink, a
// process that reads everything and does nothing. So the processor time of the attackers
// themselves does not count. Where a sink would be attacked more than members are, the comparison is with no attack.
//
// All traffic is on loopback. Where the system has several loopback addresses, attackers use
// another one than honest clients, because members count connections by address.
package abuse
