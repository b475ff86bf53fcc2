// Package history records what clients observed of a queue, or of a topic and its
// subscriptions, and finds violations. The tests of test/fault record into a [Log] while members are killed;
// [Check] then compares the record with these rules:
//
//	lost         an accepted send was never given to a receiver
//	after        a message was delivered after its completion was confirmed
//	stored twice one send is in the queue under two sequence numbers
//	copied twice one stored send was delivered more than once after a fan-out or a forward
//	two holders  a message was delivered while another lock on it was held
//	attempts     the number of failed deliveries of a message decreased
//	completed    the completion of one message was confirmed twice
//	phantom      a message was delivered that was not sent, or whose send was refused
//
// When one send is delivered at several entities, the rules hold at each entity separately.
//
// The record has the order in which clients observed events, not the order in which the broker performed
// them. That is strict enough as long as locks last longer than a delivery can be in
// flight: then no delivery of an older lock is recorded after one of a newer lock.
package history
