package router

import (
	"slices"

	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
)

// Transact applies a whole transaction, once, or nothing of it. done gets OK, or NotAllowed when the
// transaction settles messages in more than one partition: one entry of one log contains the whole transaction. ServerBusy
// means that nothing was applied, Timeout that all or nothing was. As with Send, the caller must not
// change the messages afterwards. It does not block.
//
// Messages to entities of other partitions are stored in this one and forwarded from there: they
// arrive once, a moment after the rest.
func (r *Router) Transact(tx fsm.Transaction, done func(fsm.Code)) {
	tx, code := r.resolveShards(tx)
	if code != fsm.OK {
		done(code)
		return
	}
	home, command, code := groupTransaction(tx)
	if code != fsm.OK || home.Partition == fsm.CatalogPartition {
		done(code) // refused, or empty
		return
	}
	client := r.Client(home.Partition)
	client.Submit(command, func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			done(result.Code)
			return
		}
		// The partition does not know one of the entities, and nothing was done. If the catalog knows
		// it, its creation was interrupted.
		r.recreateAll(entitiesIn(tx, home.Partition), func(recreated bool) {
			if !recreated {
				done(fsm.EntityNotFound)
				return
			}
			client.Submit(command, func(result fsm.Result) { done(result.Code) })
		})
	})
}

// resolveShards replaces partitioned entities by shards. Settlements belong to the shard in their
// sequence numbers; a message goes to the shard of its key, and without a key to the one in the
// partition of the rest, if there is one.
func (r *Router) resolveShards(tx fsm.Transaction) (fsm.Transaction, fsm.Code) {
	out, home := fsm.Transaction{}, fsm.CatalogPartition
	for i := range tx.Settles {
		s := &tx.Settles[i]
		if len(s.At.Shards) == 0 {
			out.Settles = append(out.Settles, *s)
			continue
		}
		parts := shards.Parts(s.At, s.Settlements, shards.NumberOfSettlement)
		switch {
		case len(parts) > 1:
			return out, fsm.NotAllowed // two partitions
		case len(parts) == 0, len(parts[0].Items) < len(s.Settlements):
			return out, fsm.MessageLockLost
		}
		out.Settles = append(out.Settles, fsm.SettleAt{At: parts[0].At, Settlements: parts[0].Items})
	}
	var code fsm.Code
	if out.Cancels, code = resolveCancels(tx.Cancels); code != fsm.OK {
		return out, code
	}
	out.States = tx.States
	switch {
	case len(out.Settles) > 0:
		home = out.Settles[0].At.Partition
	case len(out.Cancels) > 0:
		home = out.Cancels[0].At.Partition
	case len(out.States) > 0:
		home = out.States[0].At.Partition
	}
	for _, s := range splitReserved(tx.Sends) {
		if s.Via != nil {
			via, code := r.shardForSend(*s.Via, s.Messages, home)
			if code != fsm.OK {
				return out, code
			}
			if s.Via = &via; home == fsm.CatalogPartition {
				home = via.Partition
			}
		}
		at, code := r.shardForSend(s.At, s.Messages, home)
		if code != fsm.OK {
			return out, code
		}
		if s.At = at; home == fsm.CatalogPartition {
			home = s.At.Partition
		}
		out.Sends = append(out.Sends, withShardNumbers(s))
	}
	return out, fsm.OK
}

// resolveCancels replaces partitioned entities by the shards in the sequence numbers: MessageNotFound for one that does
// not exist.
func resolveCancels(cancels []fsm.CancelAt) (out []fsm.CancelAt, code fsm.Code) {
	for i := range cancels {
		c := &cancels[i]
		if len(c.At.Shards) == 0 {
			out = append(out, *c)
			continue
		}
		parts := shards.Parts(c.At, c.Sequences, shards.NumberOf)
		found := 0
		for j := range parts {
			found += len(parts[j].Items)
			out = append(out, fsm.CancelAt{At: parts[j].At, Sequences: parts[j].Items})
		}
		switch {
		case len(parts) > 1:
			return nil, fsm.NotAllowed // two partitions
		case found < len(c.Sequences):
			return nil, fsm.MessageNotFound
		}
	}
	return out, fsm.OK
}

// splitReserved splits the sends to partitioned entities by the shards of their reserved numbers: messages without a
// partition key may have numbers of several shards.
func splitReserved(sends []fsm.SendTo) (out []fsm.SendTo) {
	shardOf := func(m *fsm.Message) int {
		if m.Reserved == 0 {
			return -1
		}
		shard, _ := shards.Split(m.Reserved)
		return shard
	}
	for _, s := range sends {
		if len(s.At.Shards) == 0 || len(s.Messages) == 0 {
			out = append(out, s)
			continue
		}
		at := make(map[int]int) // index in out, by shard
		for i := range s.Messages {
			shard := shardOf(&s.Messages[i])
			place, known := at[shard]
			if !known {
				place = len(out)
				at[shard] = place
				out = append(out, fsm.SendTo{At: s.At, Via: s.Via})
			}
			out[place].Messages = append(out[place].Messages, s.Messages[i])
		}
	}
	return out
}

// withShardNumbers returns a send with reserved numbers as its shard gave them.
func withShardNumbers(s fsm.SendTo) fsm.SendTo {
	for i := range s.Messages {
		if m := &s.Messages[i]; m.Reserved != 0 {
			_, m.Reserved = shards.Split(m.Reserved)
		}
	}
	return s
}

// Reserve reserves sequence numbers at an entity for messages that a transaction schedules there (1 to 100), one per
// message, in order. done receives them, or EntityNotFound, EntityDisabled, NotAllowed, InvalidArgument (the messages
// have different partition keys), ServerBusy or Timeout.
// Numbers that are not used leave a gap. It does not block.
func (r *Router) Reserve(at fsm.EntityRef, messages []fsm.Message, done func(fsm.Code, []fsm.SequenceNumber)) {
	if at.Sub != fsm.MainQueue || at.Kind == fsm.SubscriptionEntity {
		done(fsm.NotAllowed, nil)
		return
	}
	bits := fsm.SequenceNumber(0)
	if len(at.Shards) > 0 {
		shard, code := r.sharded.choose(&at.Entity, messages)
		if code != fsm.OK {
			done(code, nil)
			return
		}
		at, bits = shards.Ref(at, shard), shards.Bits(shard)
	}
	client, command := r.Client(at.Partition), fsm.ReserveNumbers{Entity: at.ID, Count: uint32(len(messages))}
	reserved := func(result fsm.Result) {
		if result.Code != fsm.OK {
			done(result.Code, nil)
			return
		}
		numbers := make([]fsm.SequenceNumber, len(messages))
		for i := range numbers {
			numbers[i] = (result.Sequence + fsm.SequenceNumber(i)) | bits
		}
		done(fsm.OK, numbers)
	}
	client.Submit(command, func(result fsm.Result) {
		if result.Code != fsm.EntityNotFound {
			reserved(result)
			return
		}
		r.Recreate(at.Entity, func(recreated bool) {
			if !recreated {
				reserved(result)
				return
			}
			client.Submit(command, reserved)
		})
	})
}

// shardForSend returns the shard to which, or through which, a send of a transaction goes.
func (r *Router) shardForSend(at fsm.EntityRef, messages []fsm.Message, home fsm.PartitionID) (fsm.EntityRef, fsm.Code) {
	if len(at.Shards) == 0 {
		return at, fsm.OK
	}
	if n := messages[0].Reserved; n != 0 {
		shard, _ := shards.Split(n)
		if shard >= len(at.Shards) {
			return at, fsm.InvalidArgument
		}
		return shards.Ref(at, shard), fsm.OK
	}
	shard, code := r.sharded.choose(&at.Entity, messages)
	if code != fsm.OK {
		return at, code
	}
	if _, bound := at.ShardKey(&messages[0]); !bound {
		beside := func(s fsm.Shard) bool { return s.Partition == home }
		if i := slices.IndexFunc(at.Shards, beside); i >= 0 {
			shard = i
		}
	}
	return shards.Ref(at, shard), fsm.OK
}

// groupTransaction makes the command of a transaction for its home: the entity of the first
// settlement, cancellation or state, or, without these, the entity of the first send or the one through which it goes.
func groupTransaction(tx fsm.Transaction) (home fsm.EntityRef, command fsm.Transact, code fsm.Code) {
	for i := range tx.Settles {
		s := &tx.Settles[i]
		if i > 0 && s.At.Partition != home.Partition {
			return home, command, fsm.NotAllowed
		}
		if i == 0 {
			home = s.At
		}
		command.Settles = append(command.Settles, fsm.SettleMessages{Address: s.At.Address(), Settlements: s.Settlements})
	}
	if code = addEndings(&tx, &home, &command); code != fsm.OK {
		return home, command, code
	}
	for i := range tx.Sends {
		s := &tx.Sends[i]
		if s.At.Sub != fsm.MainQueue || s.At.Kind == fsm.SubscriptionEntity {
			return home, command, fsm.NotAllowed
		}
		if home.Partition == fsm.CatalogPartition {
			if home = s.At; s.Via != nil {
				home = *s.Via
			}
		}
		switch {
		case s.At.Partition == home.Partition:
			command.Sends = append(command.Sends, fsm.SendMessages{Entity: s.At.ID, Messages: s.Messages})
		case slices.ContainsFunc(s.Messages, func(m fsm.Message) bool { return m.Only != 0 }):
			return home, command, fsm.NotAllowed
		default:
			via := viaOrHome(s.Via, home)
			command.Transfers = append(command.Transfers, fsm.TransferOut{
				Via: via.ID, Name: s.At.Name, Messages: s.Messages,
				To: fsm.Destination{Partition: s.At.Partition, Entity: s.At.ID},
			})
		}
	}
	return home, command, fsm.OK
}

// addEndings adds the cancellations and the states of sessions to a command.
func addEndings(tx *fsm.Transaction, home *fsm.EntityRef, command *fsm.Transact) fsm.Code {
	inHome := func(at fsm.EntityRef) bool {
		if home.Partition == fsm.CatalogPartition {
			*home = at
		}
		return at.Partition == home.Partition
	}
	for _, s := range tx.Cancels {
		if !inHome(s.At) {
			return fsm.NotAllowed
		}
		command.Cancels = append(command.Cancels, fsm.CancelScheduled{Entity: s.At.ID, Sequences: s.Sequences})
	}
	for _, s := range tx.States {
		if !inHome(s.At) {
			return fsm.NotAllowed
		}
		command.States = append(command.States, s.State)
	}
	return fsm.OK
}

// viaOrHome returns the entity that a send goes through: the one it names if that lies in the partition of
// home, else home. Where partitions lie decides only whose transfer dead-letter queue gets what cannot be delivered.
func viaOrHome(via *fsm.EntityRef, home fsm.EntityRef) fsm.EntityRef {
	if via != nil && via.Partition == home.Partition {
		return *via
	}
	return home
}

// entitiesIn returns the entities of a transaction that are in a partition, each once.
func entitiesIn(tx fsm.Transaction, in fsm.PartitionID) (all []fsm.Entity) {
	add := func(at fsm.EntityRef) {
		known := func(e fsm.Entity) bool { return e.ID == at.ID }
		if at.Partition == in && !slices.ContainsFunc(all, known) {
			all = append(all, at.Entity)
		}
	}
	for i := range tx.Settles {
		add(tx.Settles[i].At)
	}
	for i := range tx.Cancels {
		add(tx.Cancels[i].At)
	}
	for i := range tx.Sends {
		add(tx.Sends[i].At)
		if tx.Sends[i].Via != nil {
			add(*tx.Sends[i].Via)
		}
	}
	return all
}

// recreateAll recreates one entity after the other and calls then with whether all succeeded. It
// does not block.
func (r *Router) recreateAll(entities []fsm.Entity, then func(recreated bool)) {
	if len(entities) == 0 {
		then(true)
		return
	}
	r.Recreate(entities[0], func(recreated bool) {
		if !recreated {
			then(false)
			return
		}
		r.recreateAll(entities[1:], then)
	})
}
