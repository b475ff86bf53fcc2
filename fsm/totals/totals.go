package totals

import "iter"

// Totals are the numbers of messages of an entity by what happened to them since the entity was created. They never fall.
//
// For a queue or subscription, the messages stored in all of its sub-queues are
//
//	Incoming + Transferred - Completed - Expired - Removed - Forwarded
//
// A topic stores no messages of its own once they are published: it has Incoming, Duplicates, and what transactions transfer
// through it.
type Totals struct {
	Incoming    uint64 // accepted from senders and from entities that forward here, without duplicates; at a subscription, copies
	Outgoing    uint64 // deliveries to receivers; each delivery of a message counts
	Completed   uint64 // completed by receivers, or received in the mode ReceiveAndDelete
	Abandoned   uint64 // abandoned by receivers; each time counts
	Deferred    uint64 // deferred by receivers; each time counts
	Expired     uint64 // deleted at the end of their time to live; those that are dead-lettered instead count there
	Duplicates  uint64 // dropped by duplicate detection
	Redriven    uint64 // moved from the dead-letter queue back to the main queue
	Forwarded   uint64 // moved to another entity
	Transferred uint64 // sent in a transaction through this entity to one of another partition
	Removed     uint64 // purged, deleted or canceled without being received
	// DeadLettered counts messages that were moved to a dead-letter queue, by reason.
	DeadLettered [Reasons]uint64
}

// Reason is why a message was dead-lettered. The list is closed: new reasons are appended.
type Reason uint8

// The reasons.
const (
	ByReceiver        Reason = iota // a receiver dead-lettered it, with whatever reason
	TooManyDeliveries               // it reached MaxDeliveryCount
	TimeToLive                      // it expired
	FilterFailed                    // a rule failed to evaluate
	NoSession                       // its subscription requires sessions, and the message has no session
	TooManyHops                     // it was forwarded too often
	ForwardRefused                  // the destination of forwarding refused it
	Reasons                         // number of reasons
)

// String returns the value of the label reason in metrics.
func (r Reason) String() string {
	return [Reasons]string{
		ByReceiver: "other", TooManyDeliveries: "max_delivery_count", TimeToLive: "time_to_live", FilterFailed: "filter_error",
		NoSession: "no_session", TooManyHops: "forwarded_too_often", ForwardRefused: "forwarding_refused",
	}[r]
}

// Counters iterates over all counters, those of DeadLettered last, in the order of images.
func (t *Totals) Counters() iter.Seq[*uint64] {
	return func(yield func(*uint64) bool) {
		for _, counter := range [...]*uint64{
			&t.Incoming, &t.Outgoing, &t.Completed, &t.Abandoned, &t.Deferred, &t.Expired, &t.Duplicates, &t.Redriven,
			&t.Forwarded, &t.Transferred, &t.Removed,
		} {
			if !yield(counter) {
				return
			}
		}
		for i := range t.DeadLettered {
			if !yield(&t.DeadLettered[i]) {
				return
			}
		}
	}
}

// Add adds other to t.
func (t *Totals) Add(other *Totals) {
	t.Incoming += other.Incoming
	t.Outgoing += other.Outgoing
	t.Completed += other.Completed
	t.Abandoned += other.Abandoned
	t.Deferred += other.Deferred
	t.Expired += other.Expired
	t.Duplicates += other.Duplicates
	t.Redriven += other.Redriven
	t.Forwarded += other.Forwarded
	t.Transferred += other.Transferred
	t.Removed += other.Removed
	for i, n := range other.DeadLettered {
		t.DeadLettered[i] += n
	}
}

// AllDeadLettered returns the sum of DeadLettered.
func (t *Totals) AllDeadLettered() (sum uint64) {
	for _, n := range t.DeadLettered {
		sum += n
	}
	return sum
}

// Stored returns how many messages a queue or subscription with these totals stores, in all sub-queues.
func (t *Totals) Stored() uint64 {
	return t.Incoming + t.Transferred - t.Completed - t.Expired - t.Removed - t.Forwarded
}
