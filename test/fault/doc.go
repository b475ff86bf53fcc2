// Package fault runs three real members, puts load on them, and takes one away: killed
// as by a power cut, or paused and resumed. Every client writes down what it sees, and
// test/history judges the record: an accepted send is received, nothing comes after its
// completion, no message is in two hands. Messages that are published or forwarded are
// judged at each subscription that they come to.
//
// The tests take some minutes; `go test -short` leaves them out.
package fault
