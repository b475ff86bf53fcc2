package forwarding

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/peeklock/peeklock/cluster/rpc"
	"github.com/peeklock/peeklock/cluster/shards"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition"
)

// noDestination is the destination of a batch whose setting names no existing entity: an id that the
// catalog never assigns. Its messages are still taken, to be dead-lettered.
const noDestination = fsm.EntityID(math.MaxUint64)

// perMessageDestination returns the destination of a batch that transactions sent: each of its
// messages has its own, so any non-zero destination works.
func perMessageDestination() fsm.Destination {
	return fsm.Destination{Partition: math.MaxUint32, Entity: noDestination}
}

// errSourceGone says that the source is no longer in the catalog: its partition drops it or has dropped
// it, and its messages are not forwarded.
var errSourceGone = errors.New("the entity that forwards is deleted")

// step ends the batch that has arrived, takes the next, and transfers it to its destination:
// one entry in the log of the source, one in that of the destination. An interrupted step is
// repeated, by this leader or another: the source returns the batch in transit until a command
// ends it, and the destination accepts its serial once.
func (f *Forwarder) step(ctx context.Context, task *forwardTask) stepResult {
	group := f.transport.LocalReplica(task.source.Partition)
	if group == nil {
		return stepLostLead
	}
	out, to, wants, there := readOutbox(group, task.source.Address)
	if !there {
		return stepDone
	}
	if f.reread == nil {
		f.logFailure(ctx, task, fsm.Internal, errors.New("this member cannot read messages: Config.Reread is not set"))
		return stepBackoff
	}
	toward, next, wait := to, fsm.Destination{}, task.pass.pause
	task.pass.pause = nil
	if wait == nil && (!out || task.done != 0) {
		next, wait = f.destination(ctx, task, wants)
		toward = next
	}
	switch {
	case errors.Is(wait, errSourceGone):
		return stepDone
	case wait != nil && task.done == 0:
		return f.backOff(ctx, task, wait)
	}
	if toward == (fsm.Destination{}) && task.done == 0 {
		return stepDone // the entity no longer forwards
	}
	if toward == perMessageDestination() {
		toward.Partition = 0 // not known yet
	}
	if !f.setDestination(task, toward.Partition) {
		return stepYield
	}
	batch, result := f.takeBatch(ctx, task, group, next)
	switch {
	case result == stepDone && wait != nil: // the batch before has ended
		return f.backOff(ctx, task, wait)
	case result == stepDone:
		return f.endPass(ctx, task)
	case result != stepMore:
		return result
	}
	if next == perMessageDestination() && !f.setDestination(task, batch.To.Partition) {
		return stepYield
	}
	codes, err := f.transferBatch(ctx, task, &batch)
	switch {
	case errors.Is(err, errSourceGone):
		return stepDone
	case errors.Is(err, errOutdated):
		return f.renewBatch(ctx, task, group, &batch, err)
	case err != nil:
		return f.backOff(ctx, task, err)
	}
	task.done, task.codes = batch.Serial, codes
	if task.isOfDeadLetters() {
		task.pass.record(batch.Deliveries, codes)
	}
	f.countBatch(ctx, task, len(batch.Deliveries), codes)
	return stepMore
}

// readOutbox reads the state of a sub-queue from this replica.
func readOutbox(group rpc.Group, at fsm.Address) (out bool, to fsm.Destination, wants string, ok bool) {
	group.View(func(m partition.Machine) {
		if machine, is := m.(outboxSource); is {
			out, to, wants, ok = machine.Outbox(at)
		}
	})
	return out, to, wants, ok
}

// destination finds the entity that the setting names: in the local replica of the catalog, which lags only
// briefly, or, when the last batch had no destination, at the catalog's leader. Dead letters wait for a change of the catalog
// while it has no such entity or the entity accepts no messages.
func (f *Forwarder) destination(ctx context.Context, task *forwardTask, wants string) (fsm.Destination, error) {
	switch {
	case task.source.Address.Sub == fsm.TransferQueue:
		return perMessageDestination(), nil
	case wants == "":
		return fsm.Destination{}, nil
	}
	f.mu.Lock()
	newest := f.failures[task.source] == fsm.EntityNotFound && !task.isOfDeadLetters()
	f.mu.Unlock()
	from, err := f.sourceEntity(ctx, task)
	if err != nil {
		return fsm.Destination{}, err
	}
	entity, err := f.deps.EntityByName(ctx, from.Namespace, wants, newest)
	switch {
	case errors.Is(err, fsm.EntityNotFound) && !task.isOfDeadLetters():
		return fsm.Destination{Partition: task.source.Partition, Entity: noDestination}, nil
	case err != nil:
		return fsm.Destination{}, fmt.Errorf("find %q: %w", wants, err)
	case task.isOfDeadLetters() && !entity.Settings.Status.AllowsSend():
		return fsm.Destination{}, fmt.Errorf("forward dead letters to %q: %w", wants, fsm.EntityDisabled)
	}
	return fsm.Destination{Partition: entity.Partition, Entity: entity.ID}, nil
}

// sourceEntity finds the source of a task in the catalog: errSourceGone when it is not there.
func (f *Forwarder) sourceEntity(ctx context.Context, task *forwardTask) (fsm.Entity, error) {
	source, err := f.deps.EntityByID(ctx, task.source.Address.Entity)
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return source, errSourceGone
	case err != nil:
		return source, fmt.Errorf("find entity %d: %w", task.source.Address.Entity, err)
	}
	return source, nil
}

// takeBatch ends the previous batch and takes the next; with stepMore it returns the batch in transit.
func (f *Forwarder) takeBatch(ctx context.Context, task *forwardTask, group rpc.Group, to fsm.Destination) (fsm.Result, stepResult) {
	command := fsm.ForwardMessages{
		Address: task.source.Address, Done: task.done, Codes: task.codes,
		To: to, After: task.pass.after, Max: forwardMessagesMax, MaxBytes: forwardBytesMax,
	}
	result, next := submit(ctx, group, command)
	switch {
	case next != stepMore:
		return result, next
	case result.Code == fsm.EntityNotFound:
		return result, stepDone // deleted meanwhile
	case result.Code != fsm.OK:
		task.done, task.codes = 0, nil // not repeated, since it may have been the reason
		return result, f.backOff(ctx, task, fmt.Errorf("take a batch: %w", result.Code))
	}
	task.done, task.codes = 0, nil
	if result.Serial == 0 {
		return result, stepDone
	}
	return result, stepMore
}

// transferBatch transfers a batch to its destination and returns a code per message, or nil when all
// were accepted. After an error the outcome is unknown, and the batch stays in transit.
func (f *Forwarder) transferBatch(ctx context.Context, task *forwardTask, batch *fsm.Result) ([]fsm.Code, error) {
	codes := make([]fsm.Code, len(batch.Deliveries))
	if batch.To.Entity == noDestination {
		return fillCodes(codes, fsm.EntityNotFound), nil
	}
	command, entity, err := f.encodeBatch(ctx, task, batch, codes)
	if err != nil {
		return nil, err
	}
	if n := len(command.Messages); n > 0 {
		answers, err := f.sendBatch(ctx, batch.To, &entity, command)
		if err != nil {
			return nil, err
		}
		mergeCodes(codes, answers)
	}
	if slices.ContainsFunc(codes, refused) {
		return codes, nil
	}
	return nil, nil
}

// mergeCodes writes the answers for the messages that were sent, in order, into the positions that
// have no code yet.
func mergeCodes(codes, answers []fsm.Code) {
	for i := range codes {
		if codes[i] == fsm.OK {
			codes[i], answers = answers[0], answers[1:]
		}
	}
}

func fillCodes(codes []fsm.Code, code fsm.Code) []fsm.Code {
	for i := range codes {
		codes[i] = code
	}
	return codes
}

// encodeBatch makes the command for the destination, and returns that entity. A message that cannot
// be forwarded gets its code and is left out, so that it does not delay the others.
func (f *Forwarder) encodeBatch(ctx context.Context, task *forwardTask, batch *fsm.Result, codes []fsm.Code) (fsm.TransferMessages, fsm.Entity, error) {
	command := fsm.TransferMessages{
		Entity: batch.To.Entity, Source: task.source, Epoch: batch.Epoch, Serial: batch.Serial,
		Messages: make([]fsm.Transferred, 0, len(batch.Deliveries)),
	}
	path := "" // of the entity that dead letters come from
	source, err := f.sourceEntity(ctx, task)
	if err != nil {
		return command, fsm.Entity{}, err
	}
	if task.source.Address.Sub == fsm.DeadLetterQueue {
		path = source.Name
	}
	shard, _ := source.ShardOf(task.source.Address.Entity)
	entity, err := f.deps.EntityByID(ctx, batch.To.Entity)
	if err != nil && !errors.Is(err, fsm.EntityNotFound) { // it may have shards
		return command, fsm.Entity{}, fmt.Errorf("look for entity %d: %w", batch.To.Entity, err)
	}
	// Only rules need the properties; an unknown destination may have some.
	withoutProperties := err == nil && entity.Kind == fsm.QueueEntity
	for i := range batch.Deliveries {
		number := batch.Deliveries[i].Lock.Sequence
		message, err := f.toTransferred(&shards.ToClient(shards.Bits(shard), batch.Deliveries[i:i+1])[0], path)
		if err != nil {
			f.log.ErrorContext(ctx, "failed to read a message to forward", "entity_id", uint64(task.source.Address.Entity),
				"sequence", uint64(batch.Deliveries[i].Lock.Sequence), "error", err)
			codes[i] = fsm.Internal
			continue
		}
		message.Number = number
		if withoutProperties {
			message.Properties = nil
		}
		single := command
		single.Messages = []fsm.Transferred{message}
		if code := fsm.Check(single); code != fsm.OK {
			codes[i] = code
			continue
		}
		command.Messages = append(command.Messages, message)
	}
	return command, entity, nil
}

// toTransferred turns a delivery of the source into a message for the destination.
func (f *Forwarder) toTransferred(d *fsm.Delivery, path string) (fsm.Transferred, error) {
	message, err := f.reread(d.Payload, d.Patches)
	if err != nil {
		return fsm.Transferred{}, err
	}
	patches, err := fsm.DecodePatches(d.Patches)
	if err != nil {
		return fsm.Transferred{}, err
	}
	if sent := slices.IndexFunc(patches, func(p fsm.Patch) bool { return p.To != fsm.Destination{} }); sent >= 0 {
		// A transaction sent the message to the destination: no other entity has held it.
		message.Reserved, message.EnqueueAt = patches[sent].ToNumber, patches[sent].ToTime
		patches = slices.Delete(patches, sent, sent+1)
		return fsm.Transferred{Message: message, Patches: fsm.AppendPatches(nil, patches), Hops: d.Hops}, nil
	}
	patch := fsm.Patch{Enqueued: d.Topic, Source: path}
	if patch.Enqueued == 0 {
		patch.Enqueued = d.Lock.Sequence
	}
	for i := range patches {
		if patches[i].Enqueued != 0 {
			patch.Enqueued = 0 // the first number is kept
		}
	}
	moved := fsm.Transferred{Message: message, Patches: d.Patches, Hops: d.Hops + 1}
	if patch.Enqueued != 0 || patch.Source != "" {
		moved.Patches = fsm.AppendPatches(nil, append(patches, patch))
	}
	return moved, nil
}
