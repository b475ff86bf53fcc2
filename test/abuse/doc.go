// Package abuse lets hostile clients loose on three real members while honest clients work.
//
// Each attack is a value of the type attack, in the file of its theme, and stands in the table
// of attacks_test.go with the limit that is to stop it. TestAbuse runs each against one cluster
// and asserts four things: the resident memory of every member stays below its limit, no member
// ends or panics, honest clients see no error and go on, and when the attackers are gone so is
// everything that members held for them.
//
// `make abuse` runs them at full size and also asserts how long honest clients wait: their 99th
// percentile with the attack is at most twice that with the same attackers aimed at a sink, a
// process that reads everything and does nothing. So what the attackers themselves take of the
// machine's processors does not count.
//
// All traffic is on loopback. Attackers come from another loopback address than honest clients
// where the system has several, for members count connections by address.
package abuse
