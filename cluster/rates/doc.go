// Package rates samples what happens to the messages of the busiest entities, for an hour. Package cluster makes one [Recorder] per member.
//
// Every 10 seconds a Recorder reads the totals of all entities of which the member has replicas, leader or not, and keeps the differences of
// the 900 most active ones. Because followers sample, too, the last hour of an entity survives a change of the leader. What a Recorder keeps
// is in memory only: a member that starts has no past.
//
// A Recorder is safe for concurrent use. It holds its lock neither while it reads a replica nor while it looks up names.
package rates
