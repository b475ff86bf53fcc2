// Package entrysum computes the checksum of the data of a log entry.
//
// The leader computes it when it has encoded the entry. From there on the field Extensions of raft.Log holds it: package transport
// sends it in place of the extensions and verifies it on arrival, and package raftlog gives it to the journal, which stores it with
// the record. So one checksum covers an entry from its encoding to every disk. Raft does not read the field, and nothing else
// uses it. An entry that raft itself creates has none until it is sent or stored.
//
// The package imports nothing of the module and keeps no state.
package entrysum
