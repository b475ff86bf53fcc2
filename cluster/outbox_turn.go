package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// nowhere is the destination of a batch whose setting names nothing that exists: an id
// that no catalog gives. Its messages are taken all the same, to be moved aside.
const nowhere = fsm.EntityID(math.MaxUint64)

// everywhere is the destination that the carrier names for what transactions send: each
// message there has one of its own, so any but the zero will do.
func everywhere() fsm.Destination { return fsm.Destination{Partition: math.MaxUint32, Entity: nowhere} }

// errSourceGone says that the catalog knows the source no more: its partition drops it, or
// has, and what it held goes nowhere.
var errSourceGone = errors.New("the entity that forwards is deleted")

// turn ends the batch that has arrived, takes the next, and brings it to its destination:
// one entry in the log of the source, one in that of the destination. Whatever is
// interrupted is done again from the start, by this leader or another: the source gives
// the batch that is out until it is told its end, the destination takes its serial once.
func (c *carrier) turn(ctx context.Context, e *errand) verdict {
	group := c.ways.local(e.source.Partition)
	if group == nil {
		return turnEnded
	}
	out, to, wants, there := lookAt(group, e.source.Address)
	if !there {
		return turnOver
	}
	if c.reread == nil {
		c.trouble(ctx, e, fsm.Internal, errors.New("this member cannot read messages: Config.Reread is not set"))
		return turnRest
	}
	heads, next := to, fsm.Destination{}
	if !out || e.done != 0 {
		var err error
		next, err = c.destination(ctx, e, wants)
		switch {
		case errors.Is(err, errSourceGone):
			return turnOver
		case err != nil:
			return c.later(ctx, e, err)
		}
		heads = next
	}
	if heads == (fsm.Destination{}) && e.done == 0 {
		return turnOver // nothing is forwarded from here any more
	}
	if heads == everywhere() {
		heads.Partition = 0 // not known yet
	}
	if !c.head(e, heads.Partition) {
		return turnFull
	}
	batch, v := c.take(ctx, e, group, next)
	if v != turnMore {
		return v
	}
	if next == everywhere() && !c.head(e, batch.To.Partition) {
		return turnFull
	}
	codes, err := c.bring(ctx, e, &batch)
	switch {
	case errors.Is(err, errSourceGone):
		return turnOver
	case err != nil:
		return c.later(ctx, e, err)
	}
	e.done, e.codes = batch.Serial, codes
	c.count(ctx, e, len(batch.Deliveries), codes)
	return turnMore
}

// lookAt reads how a sub-queue stands, as of now and here.
func lookAt(group replica, at fsm.Address) (out bool, to fsm.Destination, wants string, ok bool) {
	group.View(func(m partition.Machine) {
		if machine, is := m.(outboxMachine); is {
			out, to, wants, ok = machine.Outbox(at)
		}
	})
	return out, to, wants, ok
}

// destination finds what the setting names. Our own catalog is asked first, which is up to
// date but for moments; where the last batch found nobody its leader is.
func (c *carrier) destination(ctx context.Context, e *errand, wants string) (fsm.Destination, error) {
	switch {
	case e.source.Address.Sub == fsm.TransferQueue:
		return everywhere(), nil
	case wants == "":
		return fsm.Destination{}, nil
	}
	c.mu.Lock()
	newest := c.troubles[e.source] == fsm.EntityNotFound
	c.mu.Unlock()
	from, err := c.origin(ctx, e)
	if err != nil {
		return fsm.Destination{}, err
	}
	entity, err := c.roads.named(ctx, from.Namespace, wants, newest)
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return fsm.Destination{Partition: e.source.Partition, Entity: nowhere}, nil
	case err != nil:
		return fsm.Destination{}, fmt.Errorf("find %q: %w", wants, err)
	}
	return fsm.Destination{Partition: entity.Partition, Entity: entity.ID}, nil
}

// origin is what an errand's source is in the catalog: errSourceGone when it is not there.
func (c *carrier) origin(ctx context.Context, e *errand) (fsm.Entity, error) {
	source, err := c.roads.known(ctx, e.source.Address.Entity)
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return source, errSourceGone
	case err != nil:
		return source, fmt.Errorf("find entity %d: %w", e.source.Address.Entity, err)
	}
	return source, nil
}

// take ends the batch before and takes the next: turnMore brings the one that is out.
func (c *carrier) take(ctx context.Context, e *errand, group replica, next fsm.Destination) (fsm.Result, verdict) {
	command := fsm.ForwardMessages{
		Address: e.source.Address, Done: e.done, Codes: e.codes,
		To: next, Max: carryMessagesMax, MaxBytes: carryBytesMax,
	}
	answers := make(chan partition.Answer, 1)
	group.Submit(fsm.AppendCommand(nil, fsm.Header{}, command), func(answer partition.Answer) { answers <- answer })
	var answer partition.Answer
	select {
	case answer = <-answers:
	case <-ctx.Done():
		return fsm.Result{}, turnEnded
	}
	result := answer.Result
	switch {
	case answer.Outcome == partition.Refused && result.Code == fsm.OK:
		return result, turnEnded // another leads
	case answer.Outcome != partition.Done:
		return result, turnRest // overloaded, or being deposed: the same again
	case result.Code == fsm.EntityNotFound:
		return result, turnOver // deleted meanwhile
	case result.Code != fsm.OK:
		e.done, e.codes = 0, nil // if that was wrong, it is not said again
		return result, c.later(ctx, e, fmt.Errorf("take a batch: %w", result.Code))
	}
	e.done, e.codes = 0, nil
	if result.Serial == 0 {
		return result, turnOver
	}
	return result, turnMore
}

// bring moves a batch to its destination and says what became of each message; nil is
// that all have arrived. After an error nothing is known, and the batch stays out.
func (c *carrier) bring(ctx context.Context, e *errand, batch *fsm.Result) ([]fsm.Code, error) {
	codes := make([]fsm.Code, len(batch.Deliveries))
	if batch.To.Entity == nowhere {
		return fill(codes, fsm.EntityNotFound), nil
	}
	command, entity, err := c.pack(ctx, e, batch, codes)
	if err != nil {
		return nil, err
	}
	if n := len(command.Messages); n > 0 {
		answers, err := c.deliver(ctx, batch.To, &entity, command)
		if err != nil {
			return nil, err
		}
		spreadCodes(codes, answers)
	}
	if slices.ContainsFunc(codes, refused) {
		return codes, nil
	}
	return nil, nil
}

func refused(code fsm.Code) bool { return code != fsm.OK }

// passing says whether what a destination answered may be another answer later: nobody
// leads there, or somebody else has brought the batch before us (Stale). Codes of later
// releases are among them: waiting loses nothing.
func passing(code fsm.Code) bool {
	final := []fsm.Code{
		fsm.OK, fsm.EntityNotFound, fsm.EntityDisabled, fsm.InvalidArgument,
		fsm.QuotaExceeded, fsm.MessageTooLarge, fsm.NotAllowed,
	}
	return !slices.Contains(final, code)
}

// spreadCodes writes the answers for the messages that were sent, in order, over those that
// have no code yet.
func spreadCodes(codes, answers []fsm.Code) {
	for i := range codes {
		if codes[i] == fsm.OK {
			codes[i], answers = answers[0], answers[1:]
		}
	}
}

func fill(codes []fsm.Code, code fsm.Code) []fsm.Code {
	for i := range codes {
		codes[i] = code
	}
	return codes
}

// pack makes the command that the destination gets, and says what that is. A message that
// cannot go gets its code and is left out, so that it does not hold up the others.
func (c *carrier) pack(ctx context.Context, e *errand, batch *fsm.Result, codes []fsm.Code) (fsm.TransferMessages, fsm.Entity, error) {
	command := fsm.TransferMessages{
		Entity: batch.To.Entity, Source: e.source, Serial: batch.Serial,
		Messages: make([]fsm.Transferred, 0, len(batch.Deliveries)),
	}
	path := "" // of where dead letters come from
	source, err := c.origin(ctx, e)
	if err != nil {
		return command, fsm.Entity{}, err
	}
	if e.source.Address.Sub == fsm.DeadLetterQueue {
		path = source.Name
	}
	shard, _ := source.ShardOf(e.source.Address.Entity)
	entity, err := c.roads.known(ctx, batch.To.Entity)
	if err != nil && !errors.Is(err, fsm.EntityNotFound) { // it may have shards
		return command, fsm.Entity{}, fmt.Errorf("look for entity %d: %w", batch.To.Entity, err)
	}
	// Only rules want the properties; a destination that is not known may have some.
	bare := err == nil && entity.Kind == fsm.QueueEntity
	for i := range batch.Deliveries {
		message, err := c.readdress(&outside(shardBits(shard), batch.Deliveries[i:i+1])[0], path)
		if err != nil {
			c.log.ErrorContext(ctx, "a message cannot be read to be forwarded", "entity_id", uint64(e.source.Address.Entity),
				"sequence", uint64(batch.Deliveries[i].Lock.Sequence), "error", err)
			codes[i] = fsm.Internal
			continue
		}
		if bare {
			message.Properties = nil
		}
		alone := command
		alone.Messages = []fsm.Transferred{message}
		if code := fsm.Check(alone); code != fsm.OK {
			codes[i] = code
			continue
		}
		command.Messages = append(command.Messages, message)
	}
	return command, entity, nil
}

// readdress turns what the source gave out into what the destination takes.
func (c *carrier) readdress(d *fsm.Delivery, path string) (fsm.Transferred, error) {
	message, err := c.reread(d.Payload, d.Patches)
	if err != nil {
		return fsm.Transferred{}, err
	}
	patches, err := fsm.DecodePatches(d.Patches)
	if err != nil {
		return fsm.Transferred{}, err
	}
	if sent := slices.IndexFunc(patches, func(p fsm.Patch) bool { return p.To != fsm.Destination{} }); sent >= 0 {
		// A transaction sent it there in the first place: it was nowhere else before.
		patches = slices.Delete(patches, sent, sent+1)
		return fsm.Transferred{Message: message, Patches: fsm.AppendPatches(nil, patches), Hops: d.Hops}, nil
	}
	patch := fsm.Patch{Enqueued: d.Topic, Source: path}
	if patch.Enqueued == 0 {
		patch.Enqueued = d.Lock.Sequence
	}
	for i := range patches {
		if patches[i].Enqueued != 0 {
			patch.Enqueued = 0 // the first number is the one that stays
		}
	}
	moved := fsm.Transferred{Message: message, Patches: d.Patches, Hops: d.Hops + 1}
	if patch.Enqueued != 0 || patch.Source != "" {
		moved.Patches = fsm.AppendPatches(nil, append(patches, patch))
	}
	return moved, nil
}

// later logs why an errand rests, unless it is over because we lead no more.
func (c *carrier) later(ctx context.Context, e *errand, err error) verdict {
	if ctx.Err() != nil {
		return turnEnded
	}
	code := fsm.Internal
	errors.As(err, &code)
	c.trouble(ctx, e, code, err)
	return turnRest
}

// trouble logs why a sub-queue is not forwarded, once until that changes.
func (c *carrier) trouble(ctx context.Context, e *errand, code fsm.Code, err error) {
	if c.changed(e, code) {
		c.log.LogAttrs(ctx, level(code), "messages wait to be forwarded", c.describe(ctx, e, slog.Any("error", err))...)
	}
}

// count keeps the figures, and logs, once until that changes, that messages are not taken
// where they are sent, or are again.
func (c *carrier) count(ctx context.Context, e *errand, messages int, codes []fsm.Code) {
	worst, aside := fsm.OK, 0
	for _, code := range codes {
		if refused(code) {
			worst = code
			aside++
		}
	}
	c.counts.batches.Add(1)
	c.counts.messages.Add(uint64(messages - aside))
	c.counts.refused.Add(uint64(aside))
	if !c.changed(e, worst) {
		return
	}
	if worst == fsm.OK {
		c.log.LogAttrs(ctx, slog.LevelInfo, "messages are forwarded again", c.describe(ctx, e)...)
		return
	}
	c.log.LogAttrs(ctx, level(worst), "messages are not taken where they are forwarded to and go to the transfer dead-letter queue",
		c.describe(ctx, e, slog.String("reason", worst.String()), slog.Int("messages", aside))...)
}

// level is that of an operator's mistake, or of ours.
func level(code fsm.Code) slog.Level {
	if code == fsm.Internal {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// changed notes the state of a sub-queue and says whether it is another than before.
func (c *carrier) changed(e *errand, code fsm.Code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.troubles[e.source]
	switch {
	case code == fsm.OK:
		delete(c.troubles, e.source)
	case len(c.troubles) >= troublesMax && before == fsm.OK:
		clear(c.troubles)
		fallthrough
	default:
		c.troubles[e.source] = code
	}
	return code != before
}

// describe names the sub-queue of an errand for people.
func (c *carrier) describe(ctx context.Context, e *errand, more ...slog.Attr) []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("partition", uint64(e.source.Partition)), slog.Uint64("entity_id", uint64(e.source.Address.Entity))}
	if entity, err := c.roads.known(ctx, e.source.Address.Entity); err == nil {
		attrs = append(attrs, slog.String("entity", entity.Name))
		if e.source.Address.Sub == fsm.DeadLetterQueue {
			attrs = append(attrs, slog.String("forward_to", entity.Settings.ForwardDeadLettersTo), slog.Bool("dead_letters", true))
		} else {
			attrs = append(attrs, slog.String("forward_to", entity.Settings.ForwardTo))
		}
	}
	return append(attrs, more...)
}

// named finds an entity by name in our own catalog, or at the catalog's leader when it is
// not there or newest is set. Errors wrap EntityNotFound, ServerBusy or Timeout.
func (r *Router) named(ctx context.Context, namespace fsm.NamespaceID, name string, newest bool) (entity fsm.Entity, err error) {
	found := false
	if group := r.ways.local(fsm.CatalogPartition); group != nil && !newest {
		group.View(func(m partition.Machine) { entity, found = catalogOf(m).Lookup(namespace, name) })
	}
	if !found {
		return r.lookup(ctx, lookupQuery{Namespace: namespace, Name: name})
	}
	return entity, nil
}

// known finds an entity by id, likewise.
func (r *Router) known(ctx context.Context, id fsm.EntityID) (entity fsm.Entity, err error) {
	found := false
	if group := r.ways.local(fsm.CatalogPartition); group != nil {
		group.View(func(m partition.Machine) { entity, found = catalogOf(m).ByID(id) })
	}
	if !found {
		return r.lookup(ctx, lookupQuery{ID: id})
	}
	return entity, nil
}

// transfer asks the partition of the destination, as often as need be. An entity that only
// the catalog knows is put first: its making was interrupted. Errors are those that may
// pass; EntityNotFound as a result is final.
func (r *Router) transfer(ctx context.Context, to fsm.PartitionID, command fsm.TransferMessages) (fsm.Result, error) {
	result, err := r.command(ctx, to, command)
	if errors.Is(err, fsm.EntityNotFound) {
		_, err = r.putPart(ctx, command.Entity)
		if errors.Is(err, fsm.EntityNotFound) {
			return result, nil
		}
		if err != nil {
			return result, fmt.Errorf("finish the making of entity %d: %w", command.Entity, err)
		}
		result, err = r.command(ctx, to, command)
	}
	if err != nil && result.Code == fsm.OK {
		return result, err // ctx has ended
	}
	return result, nil
}
