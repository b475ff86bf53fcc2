// Package snapshots stores the snapshots of a replica: it writes them, sends them to other replicas, receives those of a leader,
// and loads them. A [Store] is the raft.SnapshotStore of a group, and [Frozen] its raft.FSMSnapshot. A backup has the
// same stream inside, so it is written and read here too.
//
// The package knows the machine only by its image and its references to bodies, and knows no group: what it finds damaged, it
// reports to [Config].Fail. Package partition decides when a snapshot is due.
//
// Where the parts are: snapshot.go has the files of a snapshot, store.go the newest one, raft.go the raft.SnapshotStore, sink.go the writing
// and receiving of one, stream.go the bytes that are sent, order.go the order of a replica's own snapshots and received ones,
// and sends.go the log that is kept for those that receive one.
//
// Methods of a Store may be called concurrently. Raft writes one snapshot of a replica at a time.
package snapshots
