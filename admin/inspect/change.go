package inspect

import (
	"context"
	"fmt"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of one change.
const (
	ChangeMessagesMax = 1000 // messages of one request
	moveMessagesMax   = 50   // of one that sends them again, each in a transaction
)

// Action is what a change does to messages. None of them changes a message that a receiver has locked.
type Action uint8

// The actions.
const (
	Delete  Action = iota + 1 // ready, deferred and scheduled messages
	Cancel                    // scheduled messages
	Undefer                   // deferred messages become ready
	Redrive                   // ready dead letters return to their queue or subscription
)

// verb returns how the machine settles the messages, and the states of those that it changes.
func (a Action) verb() (fsm.Verb, fsm.StateSet) {
	switch a {
	case Cancel:
		return fsm.Complete, fsm.SetOf(fsm.Scheduled)
	case Undefer:
		return fsm.Release, fsm.SetOf(fsm.Deferred)
	case Redrive:
		return 0, fsm.SetOf(fsm.Ready)
	case Delete:
	}
	return fsm.Complete, fsm.SetOf(fsm.Ready, fsm.Deferred, fsm.Scheduled)
}

// Change changes the messages of a selection, at most ChangeMessagesMax, and says where to go on. It looks for them first,
// and then changes those that it found by their numbers, which are never used again: a request that is repeated, also after
// a leader has changed half way, changes nothing twice. With DryRun it only counts. Errors wrap the codes of Peek; after
// Timeout some messages may have been changed.
func (f *Finder) Change(ctx context.Context, at Place, do Action, request *api.MessageChange) (api.MessagesChanged, error) {
	if n := len(request.Sequences); n > 0 && n <= ChangeMessagesMax && request.IsNumbers() && !request.DryRun && request.From == 0 {
		return f.changeNumbers(ctx, at, do, request)
	}
	var numbers []fsm.SequenceNumber
	changed, ref, err := f.collect(ctx, at, do, request, ChangeMessagesMax, func(d *fsm.Delivery) { numbers = append(numbers, d.Lock.Sequence) })
	if err != nil || request.DryRun || len(numbers) == 0 {
		return changed, err
	}
	_, states := do.verb()
	changed.Count, err = f.apply(ctx, ref, do, numbers, states)
	return changed, err
}

// changeNumbers is Change for numbers alone, without a look at their messages.
func (f *Finder) changeNumbers(ctx context.Context, at Place, do Action, request *api.MessageChange) (api.MessagesChanged, error) {
	c, err := newCondition(&request.Selection)
	if err != nil {
		return api.MessagesChanged{}, err
	}
	ref, err := f.broker.Resolve(ctx, at.Namespace, at.Name)
	if err != nil {
		return api.MessagesChanged{}, err //nolint:wrapcheck // admin names the entity
	}
	ref.Sub = c.sub
	_, states := do.verb()
	count, err := f.apply(ctx, ref, do, c.numbers, states)
	return api.MessagesChanged{Count: count, Matched: len(c.numbers), Looked: len(c.numbers), Next: c.numbers[len(c.numbers)-1] + 1, End: true}, err
}

// apply changes messages by their numbers.
func (f *Finder) apply(ctx context.Context, at fsm.EntityRef, do Action, numbers []fsm.SequenceNumber, states fsm.StateSet) (int, error) {
	if do == Redrive {
		return f.broker.Redrive(ctx, at, numbers)
	}
	verb, _ := do.verb()
	return f.broker.SettleUnlocked(ctx, at, numbers, verb, states)
}

// collect finds the messages of a change, at most most.
func (f *Finder) collect(ctx context.Context, at Place, do Action, request *api.MessageChange, most int, visit func(*fsm.Delivery)) (api.MessagesChanged, fsm.EntityRef, error) {
	if request.Max < 0 || request.Max > ChangeMessagesMax {
		return api.MessagesChanged{}, fsm.EntityRef{}, fmt.Errorf("%w: max is 1 to %d, not %d", fsm.InvalidArgument, ChangeMessagesMax, request.Max)
	}
	if request.IsAll() && !request.All {
		return api.MessagesChanged{}, fsm.EntityRef{}, fmt.Errorf("%w: give a condition, or \"all\": true for all messages", fsm.InvalidArgument)
	}
	selection := request.Selection
	if do == Redrive {
		if selection.SubQueue != "" && selection.SubQueue != "deadLetter" {
			return api.MessagesChanged{}, fsm.EntityRef{}, fmt.Errorf("%w: only the messages of the dead-letter queue are moved back", fsm.InvalidArgument)
		}
		selection.SubQueue = "deadLetter"
	}
	s, release, err := f.open(ctx, at, &selection)
	if err != nil {
		return api.MessagesChanged{}, fsm.EntityRef{}, err
	}
	defer release()
	_, states := do.verb()
	if s.matcher.states == 0 {
		s.matcher.states = states
	}
	if s.matcher.states &= states; s.matcher.states == 0 {
		return api.MessagesChanged{}, fsm.EntityRef{}, fmt.Errorf("%w: messages in these states do not support this change", fsm.InvalidArgument)
	}
	s.most = most
	if request.Max > 0 {
		s.most = min(most, request.Max)
	}
	if request.DryRun {
		s.most = lookMessagesMax
	}
	s.visit = func(d *fsm.Delivery) (full bool, err error) {
		if d.LockedUntil == 0 { // a deferred message may be locked, too
			visit(d)
		}
		return false, nil
	}
	if err := s.run(ctx, request.From); err != nil {
		return api.MessagesChanged{}, fsm.EntityRef{}, err
	}
	return api.MessagesChanged{Matched: s.found, Looked: s.looked, Next: s.next, End: s.ended}, s.at, nil
}
