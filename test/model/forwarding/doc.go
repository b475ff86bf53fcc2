// Package forwarding is a model of a source that forwards messages to a destination in another partition (fsm/queue, cluster/forwarding),
// of backups that copy the two partitions at different moments, and of a restore from such copies.
//
// The source and the destination are state machines, whose logs lose nothing. Between them are forwarders, which take a batch of one
// message, transfer it, and report the answer; a former leader may transfer the batch and report it late, and any of them may begin a new epoch
// because of an answer Stale. A restore makes both partitions from their copies, forgets what was on its way, and begins an epoch at the source.
//
// The promises are those of docs/operations.md, "What a restore loses and duplicates". They do not say how often messages arrive that crossed between the
// two copies, except that it is not more than twice; of the others none is lost and none arrives twice.
//
// Each field of [Guards] is a guard that the model can leave out.
package forwarding
