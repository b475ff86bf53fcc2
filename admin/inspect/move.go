package inspect

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/filter"
)

// Move sends the dead letters of a selection to another entity, or changed to their own queue or to their own subscription alone, at most moveMessagesMax in one
// request, and says where to go on. Each is locked, and then sent and deleted in one transaction: both or neither. A lock whose
// transaction has no known outcome ends by itself, and then the message is either moved or a dead letter as before. Errors
// are those of Change, and of a send to the destination.
func (f *Finder) Move(ctx context.Context, at Place, request *api.RedriveRequest) (api.MessagesChanged, error) {
	to := at.Name
	if request.To != "" {
		to = request.To
	}
	only := false // the subscription gets them
	target, err := f.broker.Resolve(ctx, at.Namespace, to)
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return api.MessagesChanged{}, fmt.Errorf("%w: to: there is no '%.260s'", fsm.InvalidArgument, to)
	case err != nil:
		return api.MessagesChanged{}, err //nolint:wrapcheck // admin names the entity
	case target.Kind == fsm.SubscriptionEntity && fsm.PathKey(to) == fsm.PathKey(at.Name):
		topic, _, _ := fsm.SplitSubscriptionPath(target.Name)
		if target, err = f.broker.Resolve(ctx, at.Namespace, topic); err != nil {
			return api.MessagesChanged{}, err //nolint:wrapcheck // admin names the entity
		}
		only = true
	case target.Kind == fsm.SubscriptionEntity:
		return api.MessagesChanged{}, fmt.Errorf("%w: a subscription gets no messages from clients: give its topic or a queue as to", fsm.InvalidArgument)
	case target.Settings.RequiresDuplicateDetection && !request.NewID:
		return api.MessagesChanged{}, fmt.Errorf("%w: '%s' detects duplicates and would drop a message whose id it knows, so that it would be lost: give them new ids (newId)", fsm.InvalidArgument, to)
	}
	var found []fsm.LockID
	changed, ref, err := f.collect(ctx, at, Redrive, &request.MessageChange, moveMessagesMax, func(d *fsm.Delivery) { found = append(found, d.Lock) })
	if err != nil || request.DryRun {
		return changed, err
	}
	for _, lock := range found {
		moved, err := f.moveOne(ctx, ref, lock, target, only, request)
		if err != nil {
			return changed, fmt.Errorf("after %d messages: message %d: %w", changed.Count, lock.Sequence, err)
		}
		if moved {
			changed.Count++
		}
	}
	return changed, nil
}

// moveOne moves one dead letter, if it is as it was found.
func (f *Finder) moveOne(ctx context.Context, at fsm.EntityRef, seen fsm.LockID, target fsm.EntityRef, only bool, request *api.RedriveRequest) (moved bool, err error) {
	type fetched struct {
		code  fsm.Code
		found []fsm.Delivery
	}
	locked, err := await(ctx, func(done func(fetched)) {
		f.broker.FetchReady(at, []fsm.LockID{seen}, false, func(code fsm.Code, found []fsm.Delivery) { done(fetched{code, found}) })
	})
	if err == nil && locked.code != fsm.OK {
		err = locked.code
	}
	if err != nil || len(locked.found) == 0 {
		return false, err
	}
	d := &locked.found[0]
	m, err := changedMessage(&at, d, &target, request)
	if err == nil && only {
		target, err = toOnly(&m, &at, target, d.Lock.Sequence)
	}
	if err == nil {
		var code fsm.Code
		code, err = await(ctx, func(done func(fsm.Code)) {
			f.broker.Transact(fsm.Transaction{
				Settles: []fsm.SettleAt{{At: at, Settlements: []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Complete}}}},
				Sends:   []fsm.SendTo{{At: target, Messages: []fsm.Message{m}}},
			}, done)
		})
		if err == nil && code == fsm.OK {
			return true, nil
		}
		if err == nil {
			err = code
		}
	}
	if !errors.Is(err, fsm.Timeout) { // it was certainly not moved
		f.broker.Settle(at, []fsm.Settlement{{Lock: d.Lock, Verb: fsm.Release}}, func([]fsm.Code) {})
	}
	return false, err
}

// toOnly addresses a message to a subscription alone, in the shard that has its dead letter, and returns the topic there.
func toOnly(m *fsm.Message, subscription *fsm.EntityRef, topic fsm.EntityRef, n fsm.SequenceNumber) (fsm.EntityRef, error) {
	m.Only = subscription.ID
	if shard := n.Shard(); len(topic.Shards) > 0 {
		if shard >= min(len(topic.Shards), len(subscription.Shards)) { // the topic was created again meanwhile
			return topic, fsm.EntityNotFound
		}
		m.Only = subscription.Shards[shard].Entity
		topic.ID, topic.Partition, topic.Shards = topic.Shards[shard].Entity, topic.Shards[shard].Partition, nil
	}
	return topic, nil
}

// restartLife makes the time to live of a message begin again, as that of every redriven message. Without a creation time
// it lives as long as its header or its queue says.
func restartLife(m *jsonmessage.Message, now time.Time) {
	if m.AbsoluteExpiry == nil {
		return
	}
	if m.Created == nil {
		m.AbsoluteExpiry = nil
		return
	}
	created := now.UTC()
	expires := created.Add(m.AbsoluteExpiry.Sub(*m.Created))
	m.Created, m.AbsoluteExpiry = &created, &expires
}

// await waits for the result of a call, or for the end of ctx: fsm.Timeout.
func await[T any](ctx context.Context, call func(done func(T))) (result T, err error) {
	results := make(chan T, 1)
	call(func(r T) { results <- r })
	select {
	case result = <-results:
		return result, nil
	case <-ctx.Done():
		return result, fmt.Errorf("%w (%w)", fsm.Timeout, ctx.Err())
	}
}

// changedMessage returns a dead letter as it is sent again.
func changedMessage(at *fsm.EntityRef, d *fsm.Delivery, target *fsm.EntityRef, request *api.RedriveRequest) (fsm.Message, error) {
	encoded, err := encodePeeked(at, d)
	if err != nil {
		return fsm.Message{}, err
	}
	m, _, err := jsonmessage.Parse(encoded, 0)
	if err != nil {
		return fsm.Message{}, err //nolint:wrapcheck // it says what it reads
	}
	delete(m.Annotations, message.ScheduledEnqueueTimeKey)
	restartLife(&m, time.Now())
	for _, name := range append([]string{filter.DeadLetterReason, filter.DeadLetterErrorDescription}, request.Remove...) {
		delete(m.Properties, name)
	}
	for name, value := range request.Properties {
		if m.Properties == nil {
			m.Properties = make(map[string]jsonmessage.Value)
		}
		m.Properties[name] = value
	}
	if request.Body != nil {
		m.Body, m.BodyBase64, m.Data, m.Value, m.Sequence = request.Body, nil, nil, nil, nil
	}
	if request.NewID {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		m.MessageID = &jsonmessage.Value{Go: hex.EncodeToString(id[:])}
	}
	if encoded, err = m.Encode(); err != nil {
		return fsm.Message{}, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
	}
	var buffer []byte
	sent, err := message.ParseWithID(&buffer, encoded)
	if err != nil {
		return fsm.Message{}, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
	}
	all := []fsm.Message{sent}
	var reader message.RuleReader
	if target.Kind == fsm.TopicEntity {
		if err := reader.ReadAll(all); err != nil {
			return fsm.Message{}, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
		}
	}
	if err := message.ApplySessions(target, all); err != nil {
		return fsm.Message{}, fmt.Errorf("%w: %s", fsm.InvalidArgument, err.Error())
	}
	return all[0], nil
}
