// Package fault runs three real members, puts load on them, and takes one away: killed
// as by a power failure, paused and resumed, or with a volume that hangs or is full. Every client records what it observes, and
// test/history checks the record: an accepted send is received, nothing is delivered after its
// completion, no message has two lock holders. Messages that are published or forwarded are
// checked at each subscription that receives them.
//
// Two clusters run at a time, because each often waits: for elections, starts, locks that expire. `make rounds` measures
// pauses, and runs one. TestInstallationByTheDocuments runs alone: network namespaces are named after the process.
//
// The tests take some minutes; `go test -short` leaves them out.
package fault
