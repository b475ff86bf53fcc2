package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
	"github.com/peeklock/peeklock/topology"
)

// Limits of the answer of a peek.
const (
	PeekMessagesMax    = 1000    // messages
	PeekMessagesNormal = 100     // without a wish
	PeekBodyMax        = 4 << 20 // bytes of one body
	PeekBodyNormal     = 64 << 10
)

// Peek returns at most most (1 to PeekMessagesMax) messages of a selection from a number on, each with at most bodyMax (1 to
// PeekBodyMax) bytes of its body. It changes nothing. If the selection is all locked messages, they have their holders. Errors wrap InvalidArgument, EntityNotFound, NotAllowed (a topic, or a
// session where there are none), ServerBusy or Timeout.
func (f *Finder) Peek(ctx context.Context, at Place, selection *api.Selection, from fsm.SequenceNumber, most, bodyMax int) (api.MessagePage, error) {
	s, release, err := f.open(ctx, at, selection)
	if err != nil {
		return api.MessagePage{}, err
	}
	defer release()
	page := api.MessagePage{Messages: []api.Message{}}
	visit := &pageVisit{at: &s.at, bodyMax: bodyMax, to: &page.Messages}
	s.most, s.visit = most, visit.visit
	if err := s.run(ctx, from); err != nil {
		return api.MessagePage{}, err
	}
	page.Looked, page.Next, page.End = s.looked, s.next, s.ended
	if f.LockHolders != nil && slices.Equal(selection.States, []string{api.StateLocked}) {
		f.nameHolders(ctx, &s.at, page.Messages)
	}
	return page, nil
}

// pageVisit describes messages for an answer, up to AnswerBytesMax.
type pageVisit struct {
	at      *fsm.EntityRef
	bodyMax int
	to      *[]api.Message
	bytes   int
}

// visit appends a message to the answer, or reports that the answer is full.
func (p *pageVisit) visit(d *fsm.Delivery) (full bool, err error) {
	shown, err := describe(p.at, d, p.bodyMax)
	if err != nil {
		return false, err
	}
	size := min(shown.BodyBytes, p.bodyMax) + len(d.Payload) + len(d.Patches) - shown.BodyBytes
	if p.bytes += size; p.bytes > AnswerBytesMax && len(*p.to) > 0 {
		return true, nil
	}
	*p.to = append(*p.to, shown)
	return false, nil
}

// nameHolders sets the holders of locked messages.
func (f *Finder) nameHolders(ctx context.Context, at *fsm.EntityRef, messages []api.Message) {
	if len(messages) == 0 {
		return
	}
	q := topology.LockQuery{Partition: at.Partition, Entity: at.ID, Sub: at.Sub}
	for i := range messages {
		q.Sequences = append(q.Sequences, messages[i].SequenceNumber)
	}
	holders := make(map[fsm.SequenceNumber]string)
	for _, h := range f.LockHolders(ctx, q) {
		holders[h.Sequence] = h.Connection
	}
	for i := range messages {
		messages[i].Holder = holders[messages[i].SequenceNumber]
	}
}

// encodePeeked returns the message as a client peeks at it.
func encodePeeked(at *fsm.EntityRef, d *fsm.Delivery) ([]byte, error) {
	encoded, err := message.AppendDelivery(nil, *at, *d, message.DeliveryOptions{Peeked: true})
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return encoded, nil
}

// stateOf returns the state of a message, without that of a message which its sender scheduled.
func stateOf(d *fsm.Delivery) string {
	switch d.State { //nolint:exhaustive // the others are active
	case fsm.Deferred:
		return api.StateDeferred
	case fsm.Scheduled:
		return api.StateScheduled
	}
	return api.StateActive
}

// describe returns the JSON form of a message.
func describe(at *fsm.EntityRef, d *fsm.Delivery, bodyMax int) (api.Message, error) {
	encoded, err := encodePeeked(at, d)
	if err != nil {
		return api.Message{}, err
	}
	m := api.Message{
		SequenceNumber: d.Lock.Sequence, State: stateOf(d), Locked: d.LockedUntil != 0, DeliveryCount: d.FailedDeliveries,
		Enqueued: toTime(d.Enqueued), LockedUntil: toTime(d.LockedUntil), Expires: toTime(d.Expires),
	}
	if m.Message, m.BodyBytes, err = jsonmessage.Parse(encoded, bodyMax); err != nil {
		return api.Message{}, fmt.Errorf("message %d: %w", d.Lock.Sequence, err)
	}
	notes := m.Annotations
	m.EnqueuedNumber, _ = notes[message.EnqueueSequenceNumberKey].Go.(int64)
	m.DeadLetterSource, _ = notes[message.DeadLetterSourceKey].Go.(string)
	if m.DeadLetterSource == "" && at.Sub != fsm.MainQueue {
		m.DeadLetterSource = deadLetterSource(at)
	}
	if m.State == api.StateScheduled {
		m.Due = dueOf(notes)
	}
	maps.DeleteFunc(m.Annotations, func(name string, _ jsonmessage.Value) bool { return message.IsBrokerAnnotation([]byte(name)) })
	if len(m.Annotations) == 0 {
		m.Annotations = nil
	}
	m.Reason, _ = m.Properties[filter.DeadLetterReason].Go.(string)
	m.Description, _ = m.Properties[filter.DeadLetterErrorDescription].Go.(string)
	return m, nil
}

// dueOf returns the time at which a message is enqueued that its sender scheduled.
func dueOf(notes map[string]jsonmessage.Value) *time.Time {
	if at, ok := notes[message.ScheduledEnqueueTimeKey].Go.(time.Time); ok {
		return &at
	}
	return nil
}
