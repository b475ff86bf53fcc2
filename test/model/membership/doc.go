// Package membership is a model of the membership of a Raft group as hashicorp/raft 1.7.3 and package partition change it: one voter at a
// time, with appends that fail, replicas that are replaced under a new name at the same member, and votes that are given by
// the address of a member.
//
// A step is an election by one quorum, the replication of one entry to one replica, a commit, or a change: messages that are lost are steps
// that do not happen. The commit index of a leader, the entries that followers have confirmed to it and its configurations are those of raft: the latest
// configuration counts as soon as it was proposed, and as committed when the commit index passes its index.
//
// The rules that the model can leave out are the guards of docs/raft-notes.md: [Model.ForgetsUnstored] and [Model.NamesReplicas].
package membership
