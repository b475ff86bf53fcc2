package amqp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/amqp/message"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// retry states whether the same request can succeed later (docs/requirements.md#t1).
type retry uint8

const (
	retryNever       retry = iota // not unless the request changes
	retryAfterChange              // after the client follows the advice in the text
	retryLater                    // without a change
)

// advice returns the sentence that advises clients.
func (r retry) advice() string {
	switch r {
	case retryLater:
		return "A retry may help."
	case retryAfterChange:
		return "A retry helps only after that."
	case retryNever:
	}
	return "A retry will not help."
}

// refusal is the reason why a request is refused, in AMQP terms. The zero value refuses nothing.
type refusal struct {
	condition wire.Symbol
	text      string // whole sentences: the error, and the advice
	retry     retry
}

// newRefusal returns a refusal that a retry does not change.
func newRefusal(condition wire.Symbol, format string, args ...any) refusal {
	return refusal{condition: condition, text: fmt.Sprintf(format, args...)}
}

// newError converts a refusal to the error that a client gets. Every rejected transfer and settlement, every
// refused or failed link, every failed request, ended session and closed connection uses it, so each has a
// condition, a text with advice on retries, and a tracking id that is logged with the reason
// (docs/requirements.md#t1): an operator searches for the id to find the error that a client got.
func (c *conn) newError(ctx context.Context, r refusal, about ...any) *wire.Error {
	c.totals.countRefusal(r.condition)
	id, now := newTrackingID(), time.Now().UTC()
	if c.log.Enabled(ctx, slog.LevelInfo) {
		if ok, before := c.refusalLog.allow(c.origin, now); ok {
			c.log.With(about...).LogAttrs(ctx, slog.LevelInfo, "request refused",
				slog.String("tracking_id", id), slog.String("condition", string(r.condition)), slog.String("reason", r.text), slog.Int("not_logged", before))
		}
	}
	return &wire.Error{
		Condition:   r.condition,
		Description: r.text + " " + r.retry.advice() + " TrackingId:" + id + ", Timestamp:" + now.Format(time.RFC3339),
	}
}

// refusalOf converts an error of the message parser about client input to a refusal. The error is a clause;
// refusalOf extends it to a sentence with advice.
func refusalOf(what string, err error) refusal {
	r := refusal{condition: wire.ConditionDecodeError, text: err.Error()}
	var m *message.Error
	if errors.As(err, &m) {
		r.condition, r.text = m.Condition, m.Text
	}
	r.text = what + " cannot be taken: " + r.text + ". Correct it and send it again."
	return r
}

// withBusyReason adds the reason why the member accepts no new messages to a server-busy refusal, if the
// reason is known.
func (c *conn) withBusyReason(code fsm.Code, cause refusal) refusal {
	if code == fsm.ServerBusy && c.config.BusyReason != nil {
		if reason := c.config.BusyReason(); reason != "" {
			cause.text = reason
		}
	}
	return cause
}

// newTrackingID returns a GUID, as in the texts of the cloud
// (docs/service-bus-protocol.md#error-descriptions).
func newTrackingID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())  //nolint:gosec // an id to search logs by, not a secret
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()) //nolint:gosec // as above
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80   // version 4 (RFC 9562, 5.4)
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// errorReply is an fsm.Code in the terms of AMQP and of the management node.
type errorReply struct {
	refusal       // its condition is empty for OK
	status  int32 // statusCode of a management response (docs/service-bus-protocol.md#management-status-codes)
}

// errorReplyOf maps codes to conditions: one row per Code.
func errorReplyOf(code fsm.Code) errorReply {
	switch code {
	case fsm.OK:
		return errorReply{refusal{text: "OK"}, http.StatusOK}
	case fsm.EntityNotFound:
		return errorReply{refusal{wire.ConditionNotFound, "The messaging entity could not be found. Create it, or correct its name.", retryAfterChange}, http.StatusNotFound}
	case fsm.EntityDisabled:
		return errorReply{refusal{wire.ConditionEntityDisabled, "The messaging entity is disabled for this operation. Change its status.", retryAfterChange}, http.StatusForbidden}
	case fsm.EntityExists:
		return errorReply{refusal{wire.ConditionEntityAlreadyExists, "The entity exists already. Choose another name.", retryNever}, http.StatusConflict}
	case fsm.RuleNotFound:
		return errorReply{refusal{wire.ConditionNotFound, "The messaging entity could not be found: the subscription has no such rule. Create it, or correct its name.", retryAfterChange}, http.StatusNotFound}
	case fsm.RuleExists:
		return errorReply{refusal{wire.ConditionEntityAlreadyExists, "The subscription has a rule of this name already. Choose another name, or remove that rule first.", retryNever}, http.StatusConflict}
	case fsm.MessageLockLost:
		return errorReply{refusal{wire.ConditionMessageLockLost, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue. Receive the message again.", retryNever}, http.StatusGone}
	case fsm.SessionLockLost:
		return errorReply{refusal{wire.ConditionSessionLockLost, "The session lock has expired or was released. Accept the session again.", retryNever}, http.StatusGone}
	case fsm.SessionCannotBeLocked:
		return errorReply{refusal{wire.ConditionSessionCannotBeLocked, "The requested session cannot be accepted. It is locked by another receiver; wait until that closes or its lock expires.", retryLater}, http.StatusConflict}
	case fsm.MessageNotFound:
		return errorReply{refusal{wire.ConditionMessageNotFound, "The message could not be found. Check its sequence number: it may have been handled already.", retryNever}, http.StatusNotFound}
	case fsm.MessageTooLarge:
		return errorReply{refusal{wire.ConditionMessageSizeExceeded, "The message is larger than the entity allows, or the batch makes too many copies. Send a smaller one, or raise the maximum message size of the entity.", retryNever}, http.StatusBadRequest}
	case fsm.QuotaExceeded:
		return errorReply{refusal{wire.ConditionResourceLimitExceeded, "The entity is full. Receive messages from it and from its dead-letter queue, or raise its maximum size.", retryAfterChange}, http.StatusForbidden}
	case fsm.InvalidArgument:
		return errorReply{refusal{wire.ConditionArgumentError, "An argument is not valid. Correct the request.", retryNever}, http.StatusBadRequest}
	case fsm.NotAllowed:
		return errorReply{refusal{wire.ConditionNotAllowed, "The operation is not allowed on this entity. Use another entity or operation.", retryNever}, http.StatusBadRequest}
	case fsm.Unauthorized:
		return errorReply{refusal{wire.ConditionUnauthorizedAccess, "Unauthorized access. Use a key or token with the right that the operation needs.", retryAfterChange}, http.StatusUnauthorized}
	case fsm.ServerBusy:
		return errorReply{refusal{wire.ConditionServerBusy, "The server was unable to process the request; please retry.", retryLater}, http.StatusServiceUnavailable}
	case fsm.Timeout:
		return errorReply{refusal{wire.ConditionTimeout, "The operation did not complete within the allotted time. It may or may not have been done.", retryLater}, http.StatusRequestTimeout}
	case fsm.NotImplemented:
		return errorReply{refusal{wire.ConditionNotImplemented, "The operation is not supported. Do without it.", retryNever}, http.StatusNotImplemented}
	case fsm.PreconditionFails:
		return errorReply{refusal{wire.ConditionPreconditionFailed, "The entity was changed in the meantime. Read it again.", retryAfterChange}, http.StatusPreconditionFailed}
	case fsm.Stale, fsm.Internal:
	}
	return errorReply{refusal{wire.ConditionInternalError, "The service was unable to process the request. If it stays so, look for the tracking id in the log of the member.", retryLater}, http.StatusInternalServerError}
}

// forSettlement returns the refusal of a settlement on a link. The Go client retries after conditions that it
// considers temporary, finds that the delivery was answered once, and reports success. Therefore an
// unconfirmed settlement is never refused with a condition that requests a retry, or with one that this client
// does not know as final. Clients are prepared for lock lost (docs/requirements.md#t13), and a client that
// asks again gets the answer that applies at that time.
func (r refusal) forSettlement() refusal {
	switch r.condition {
	case wire.ConditionMessageLockLost, wire.ConditionSessionLockLost, wire.ConditionNotFound, wire.ConditionEntityDisabled, wire.ConditionNotAllowed,
		wire.ConditionUnauthorizedAccess, wire.ConditionMessageSizeExceeded, wire.ConditionResourceLimitExceeded:
		return r
	}
	if r.retry == retryLater {
		return refusal{wire.ConditionMessageLockLost, "The settlement is not confirmed, and the message may come again. " + r.text, retryLater}
	}
	r.condition = wire.ConditionNotAllowed
	return r
}

// forReattach returns the refusal that ends a link which the client should attach again; the new attach
// reports the reason. After another condition the Go client would keep the ended link of a sender for ever,
// and every client would after server-busy.
func (r refusal) forReattach() refusal {
	return refusal{wire.ConditionDetachForced, r.text + " Attach the link again.", retryAfterChange}
}

// withEntity adds the name of the entity in the form that clients search for: JavaScript and Java distinguish
// a missing entity from other errors by this exact text (docs/service-bus-protocol.md#error-descriptions).
func (v errorReply) withEntity(path string) errorReply {
	switch v.condition {
	case wire.ConditionNotFound:
		v.text = notFoundText(path)
	case wire.ConditionEntityDisabled:
		v.text = fmt.Sprintf("The messaging entity '%s' is disabled for this operation. Change its status.", path)
	}
	return v
}

// notFoundText returns the text that the Java and JavaScript clients search for.
func notFoundText(entity string) string {
	return fmt.Sprintf("The messaging entity '%s' could not be found. Create it, or correct its name.", entity)
}
