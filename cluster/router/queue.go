package router

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of what one request removes or redrives, as in fsm. Callers repeat the request for
// more.
const (
	purgeMessagesMax   = 4000 // of one purge: as in the cloud service
	redriveMessagesMax = 1000 // of one redrive
)

// Schedule stores messages, all or none, of which some or all have an EnqueueAt. done gets one
// sequence number per message, in order, for CancelScheduled; 0 for a duplicate that was dropped. As
// with Send, the caller must not change the messages afterwards.
func (r *Router) Schedule(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	n := len(messages)
	r.sendMessages(at, messages, func(result fsm.Result) {
		if result.Code != fsm.OK {
			done(result.Code, nil)
			return
		}
		numbers := result.Sequences
		if len(numbers) != n { // no duplicate: the numbers are consecutive
			numbers = make([]fsm.SequenceNumber, n)
			for i := range numbers {
				numbers[i] = result.Sequence + fsm.SequenceNumber(i)
			}
		}
		done(fsm.OK, numbers)
	})
}

// CancelScheduled removes scheduled messages (1 to 4096), all or none: MessageNotFound when one of
// the numbers is not a scheduled message.
func (r *Router) CancelScheduled(at fsm.EntityRef, sequences []fsm.SequenceNumber, done func(fsm.Code)) {
	if at.Sub != fsm.MainQueue {
		done(fsm.MessageNotFound) // nothing is scheduled there
		return
	}
	if len(at.Shards) > 0 {
		r.cancelShards(at, sequences, done)
		return
	}
	command := fsm.CancelScheduled{Entity: at.ID, Sequences: sequences}
	r.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code) })
}

// Purge removes ready messages that were enqueued before a given time (0: all), oldest first, at most
// max (1 to 4000; larger values are reduced). done gets the number of removed messages. 0 means that none
// are left; fewer than max does not, because expired messages are not counted.
func (r *Router) Purge(at fsm.EntityRef, before fsm.Instant, max int, done func(fsm.Code, int)) {
	if max < 1 {
		done(fsm.InvalidArgument, 0)
		return
	}
	if len(at.Shards) > 0 {
		r.purgeShards(at, before, min(max, purgeMessagesMax), 0, 0, fsm.OK, done)
		return
	}
	command := fsm.PurgeMessages{Address: at.Address(), Before: before, Max: uint32(min(max, purgeMessagesMax))}
	r.Client(at.Partition).Submit(command, func(result fsm.Result) { done(result.Code, int(result.Count)) })
}

// PurgeEntity is Purge by name; a zero time means all. After ServerBusy nothing was removed; after
// Timeout some messages may have been, and it may be called again.
func (r NamespaceView) PurgeEntity(ctx context.Context, name string, sub fsm.SubQueue, before time.Time, most int) (int, error) {
	entity, err := r.messageHolder(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("purge %q: %w", name, err)
	}
	var beforeInstant fsm.Instant
	if !before.IsZero() {
		// At least 1, because 0 means "all".
		beforeInstant = fsm.Instant(max(1, before.UnixMilli()))
	}
	type purged struct {
		code fsm.Code
		n    int
	}
	done := make(chan purged, 1)
	r.Purge(fsm.EntityRef{Entity: entity, Sub: sub}, beforeInstant, most, func(code fsm.Code, n int) { done <- purged{code, n} })
	select {
	case p := <-done:
		if p.code != fsm.OK {
			return 0, fmt.Errorf("purge %q: %w", name, p.code)
		}
		return p.n, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("purge %q: %w (%w)", name, fsm.Timeout, ctx.Err())
	}
}

// RedriveEntity moves dead letters (1 to 1000, by number) back to their main queue and returns how
// many: it skips numbers that are not ready dead letters. Errors wrap EntityNotFound,
// InvalidArgument, NotAllowed (a topic), ServerBusy or Timeout; it may be called again.
func (r NamespaceView) RedriveEntity(ctx context.Context, name string, sequences []fsm.SequenceNumber) (int, error) {
	if len(sequences) < 1 || len(sequences) > redriveMessagesMax {
		return 0, fmt.Errorf("redrive %q: %w: 1 to %d numbers at a time, not %d", name, fsm.InvalidArgument, redriveMessagesMax, len(sequences))
	}
	entity, err := r.messageHolder(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("redrive %q: %w", name, err)
	}
	count, err := r.redrive(ctx, fsm.EntityRef{Entity: entity}, sequences)
	if err != nil {
		return count, fmt.Errorf("redrive %q: %w", name, err)
	}
	return count, nil
}

// redrive moves dead letters back; an entry takes as many as it may rewrite.
func (r *Router) redrive(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error) {
	if len(at.Shards) > 0 {
		return r.redriveShards(ctx, at, sequences)
	}
	count := 0
	for {
		result, err := r.Command(ctx, at.Partition, fsm.RedriveMessages{Entity: at.ID, Sequences: sequences})
		count += int(result.Count)
		left := slices.Index(sequences, result.Sequence)
		switch {
		case err != nil || left < 0:
			return count, err
		case left == 0: // others fill the entries
			return count, fsm.ServerBusy
		}
		sequences = sequences[left:]
	}
}

// messageHolder finds a queue or subscription by name.
func (r NamespaceView) messageHolder(ctx context.Context, name string) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
	if err == nil && entity.Kind == fsm.TopicEntity {
		err = fmt.Errorf("%w: a topic holds no messages for receivers, its subscriptions do", fsm.NotAllowed)
	}
	return entity, err
}
