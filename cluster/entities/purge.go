package entities

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// The limits of what one request removes or redrives, as in fsm. Callers repeat the request for
// more.
const (
	PurgeMessagesMax   = 4000 // of one purge: as in the cloud service
	redriveMessagesMax = 1000 // of one redrive
)

// Purge removes ready messages that were enqueued before a given time (0: all), oldest first, at most
// max (1 to 4000; larger values are reduced). done gets the number of messages known to be removed: a shard that did not answer in
// time may have removed more. 0 means that none are left; fewer than max does not, because expired messages are not counted.
func (r *Manager) Purge(at fsm.EntityRef, before fsm.Instant, max int, done func(fsm.Code, int)) {
	if max < 1 {
		done(fsm.InvalidArgument, 0)
		return
	}
	r.purgeShards(at, before, min(max, PurgeMessagesMax), 0, 0, fsm.OK, done)
}

// purgeShards purges one shard after the other. It skips a shard that does not answer, and returns its code when nothing
// was removed.
func (r *Manager) purgeShards(at fsm.EntityRef, before fsm.Instant, max, shard, removed int, worst fsm.Code, done func(fsm.Code, int)) {
	if shard == shards.Count(at) || max <= 0 {
		if removed > 0 {
			worst = fsm.OK
		}
		done(worst, removed)
		return
	}
	part := shards.Ref(at, shard)
	command := fsm.PurgeMessages{Address: part.Address(), Before: before, Max: uint32(max)}
	r.Client(part.Partition).Submit(command, func(result fsm.Result) {
		if result.Code != fsm.OK {
			worst = result.Code
		}
		n := int(result.Count)
		r.purgeShards(at, before, max-n, shard+1, removed+n, worst, done)
	})
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

// redrive moves dead letters of all shards back. It returns the count of the shards that answered, also with an error.
func (r *Manager) redrive(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error) {
	parts := shards.Parts(at, sequences, shards.NumberOf)
	var total atomic.Int64
	err := shards.Each(ctx, at, func(ctx context.Context, part fsm.EntityRef, shard int) error {
		place := slices.IndexFunc(parts, func(p shards.Part[fsm.SequenceNumber]) bool { return p.Shard == shard })
		if place < 0 {
			return nil
		}
		n, err := r.redriveShard(ctx, part, parts[place].Items)
		total.Add(int64(n))
		return err
	})
	return int(total.Load()), err
}

// redriveShard moves dead letters of one shard back; an entry takes as many as it may rewrite.
func (r *Manager) redriveShard(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error) {
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

// Redrive is RedriveEntity for an entity that was looked up.
func (r *Manager) Redrive(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber) (int, error) {
	return r.redrive(ctx, fsm.EntityRef{Entity: at.Entity}, sequences)
}

// SettleUnlocked settles messages of a sub-queue by number that nobody has locked, and returns how many: with Complete it
// deletes those in the given states, with Release it makes deferred ones ready. Numbers of other messages are skipped, so it
// may be called again. At most 1000 numbers are possible. Errors wrap EntityNotFound, InvalidArgument, NotAllowed (a
// topic), ServerBusy or Timeout.
func (r *Manager) SettleUnlocked(ctx context.Context, at fsm.EntityRef, sequences []fsm.SequenceNumber, verb fsm.Verb, states fsm.StateSet) (int, error) {
	count := 0
	for _, part := range shards.Parts(at, sequences, shards.NumberOf) {
		command := fsm.SettleUnlocked{Address: fsm.EntityRef{Entity: part.At.Entity, Sub: at.Sub}.Address(), Sequences: part.Items, Verb: verb, States: states}
		result, err := r.Command(ctx, part.At.Partition, command)
		count += int(result.Count)
		if err != nil {
			return count, fmt.Errorf("settle messages of %q: %w", at.Name, err)
		}
	}
	return count, nil
}

// messageHolder finds a queue or subscription by name.
func (r NamespaceView) messageHolder(ctx context.Context, name string) (fsm.Entity, error) {
	entity, err := r.lookup(ctx, EntityQuery{Namespace: r.id, Name: name})
	if err == nil && entity.Kind == fsm.TopicEntity {
		err = fmt.Errorf("%w: a topic holds no messages for receivers, its subscriptions do", fsm.NotAllowed)
	}
	return entity, err
}
