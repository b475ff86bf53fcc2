package queue

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/index"
)

// Reason and description of expired messages that are dead-lettered, exactly as in Azure Service
// Bus (docs/requirements.md#e5).
const (
	reasonExpired      = "TTLExpiredException"
	descriptionExpired = "The message expired and was dead lettered."
)

// effectiveTimeToLive returns the time to live of a message of this entity: the sender's, 0 for
// none, limited by that of the entity (docs/requirements.md#e4).
func (x *entityState) effectiveTimeToLive(given fsm.Millis) fsm.Millis {
	if given == 0 {
		return x.settings.DefaultTimeToLive
	}
	return min(given, x.settings.DefaultTimeToLive)
}

// keepsExpired reports whether expired messages are dead-lettered instead of deleted.
func (sub *subqueue) keepsExpired() bool {
	return sub.address.Sub == fsm.MainQueue && sub.entity.settings.DeadLetterOnExpiry
}

// expire moves an expired message that is not locked to the dead-letter queue, or deletes it. The
// patch is that of the settlement that ended its lock, if one did.
func (q *Machine) expire(sub *subqueue, at index.Cursor, rec index.Record, patch fsm.Patch) {
	if !sub.keepsExpired() {
		q.deleteMessage(sub, at, &rec)
		return
	}
	patch.DeadLetter, patch.Reason, patch.Description = true, reasonExpired, descriptionExpired
	q.deadLetter(sub.entity, at, rec, patch)
}
