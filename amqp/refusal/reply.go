package refusal

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Reply is an fsm.Code in the terms of AMQP and of the management node.
type Reply struct {
	Cause        // its condition is empty for OK
	Status int32 // statusCode of a management response (docs/service-bus-protocol.md#management-status-codes)
}

// ReplyOf maps codes to conditions: one row per Code.
func ReplyOf(code fsm.Code) Reply {
	switch code {
	case fsm.OK:
		return Reply{Cause: Cause{Text: "OK"}, Status: http.StatusOK}
	case fsm.EntityNotFound:
		return Reply{Cause: AfterChange(wire.ConditionNotFound, "The messaging entity could not be found. Create it, or correct its name."), Status: http.StatusNotFound}
	case fsm.EntityDisabled:
		return Reply{Cause: AfterChange(wire.ConditionEntityDisabled, "The messaging entity is disabled for this operation. Change its status."), Status: http.StatusForbidden}
	case fsm.EntityExists:
		return Reply{Cause: New(wire.ConditionEntityAlreadyExists, "The entity exists already. Choose another name."), Status: http.StatusConflict}
	case fsm.RuleNotFound:
		return Reply{Cause: AfterChange(wire.ConditionNotFound, "The messaging entity could not be found: the subscription has no such rule. Create it, or correct its name."), Status: http.StatusNotFound}
	case fsm.RuleExists:
		return Reply{Cause: New(wire.ConditionEntityAlreadyExists, "The subscription has a rule of this name already. Choose another name, or remove that rule first."), Status: http.StatusConflict}
	case fsm.MessageLockLost:
		return Reply{Cause: New(wire.ConditionMessageLockLost, "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue. Receive the message again."), Status: http.StatusGone}
	case fsm.SessionLockLost:
		return Reply{Cause: New(wire.ConditionSessionLockLost, "The session lock has expired or was released. Accept the session again."), Status: http.StatusGone}
	case fsm.SessionCannotBeLocked:
		return Reply{Cause: Later(wire.ConditionSessionCannotBeLocked, "The requested session cannot be accepted. It is locked by another receiver; wait until that closes or its lock expires."), Status: http.StatusConflict}
	case fsm.MessageNotFound:
		return Reply{Cause: New(wire.ConditionMessageNotFound, "The message could not be found. Check its sequence number: it may have been handled already."), Status: http.StatusNotFound}
	case fsm.MessageTooLarge:
		return Reply{Cause: New(wire.ConditionMessageSizeExceeded, "The message is larger than the entity allows, or the batch makes too many copies. Send a smaller one, or raise the maximum message size of the entity."), Status: http.StatusBadRequest}
	case fsm.QuotaExceeded:
		return Reply{Cause: AfterChange(wire.ConditionResourceLimitExceeded, "The entity is full. Receive messages from it and from its dead-letter queue, or raise its maximum size."), Status: http.StatusForbidden}
	case fsm.NamespaceFull:
		return Reply{Cause: AfterChange(wire.ConditionResourceLimitExceeded, "The namespace holds more than its share of memory or disk space, or has reached a limit of its settings. Receive, purge or delete some of its messages and rules, or have an operator raise the limit."), Status: http.StatusForbidden}
	case fsm.InvalidArgument:
		return Reply{Cause: New(wire.ConditionArgumentError, "An argument is not valid. Correct the request."), Status: http.StatusBadRequest}
	case fsm.NotAllowed:
		return Reply{Cause: New(wire.ConditionNotAllowed, "The operation is not allowed on this entity. Use another entity or operation."), Status: http.StatusBadRequest}
	case fsm.Unauthorized:
		return Reply{Cause: AfterChange(wire.ConditionUnauthorizedAccess, "Unauthorized access. Use a key or token with the right that the operation needs."), Status: http.StatusUnauthorized}
	case fsm.ServerBusy:
		return Reply{Cause: Later(wire.ConditionServerBusy, "The server was unable to process the request; please retry."), Status: http.StatusServiceUnavailable}
	case fsm.Timeout:
		return Reply{Cause: Later(wire.ConditionTimeout, "The operation did not complete within the allotted time. It may or may not have been done."), Status: http.StatusRequestTimeout}
	case fsm.NotImplemented:
		return Reply{Cause: New(wire.ConditionNotImplemented, "The operation is not supported. Do without it."), Status: http.StatusNotImplemented}
	case fsm.PreconditionFails:
		return Reply{Cause: AfterChange(wire.ConditionPreconditionFailed, "The entity was changed in the meantime. Read it again."), Status: http.StatusPreconditionFailed}
	case fsm.Stale, fsm.Internal:
	}
	return Reply{Cause: Later(wire.ConditionInternalError, "The service was unable to process the request. If it stays so, look for the tracking id in the log of the member."), Status: http.StatusInternalServerError}
}

// WithEntity adds the name of the entity in the form that clients search for: JavaScript and Java distinguish
// a missing entity from other errors by this exact text (docs/service-bus-protocol.md#error-descriptions).
func (v Reply) WithEntity(path string) Reply {
	switch v.Condition {
	case wire.ConditionNotFound:
		v.Text = NotFoundText(path)
	case wire.ConditionEntityDisabled:
		v.Text = fmt.Sprintf("The messaging entity '%s' is disabled for this operation. Change its status.", path)
	}
	return v
}

// NotFoundText returns the text that the Java and JavaScript clients search for.
func NotFoundText(entity string) string {
	return fmt.Sprintf("The messaging entity '%s' could not be found. Create it, or correct its name.", entity)
}

// Worst returns the first code that is not OK, or OK.
func Worst(codes []fsm.Code) fsm.Code {
	for _, code := range codes {
		if code != fsm.OK {
			return code
		}
	}
	return fsm.OK
}

// CodeOf returns the code of an error of the broker; ServerBusy for an error without a code, for example when
// its time is over.
func CodeOf(err error) fsm.Code {
	code := fsm.ServerBusy
	_ = errors.As(err, &code)
	return code
}

// CodeOfError returns the code that an error carries, if it has one.
func CodeOfError(err error) (code fsm.Code, known bool) {
	known = errors.As(err, &code)
	return code, known
}

// SettleReplyOf returns the reply to a settlement. The gateway has checked everything else in the command, so
// it is invalid for one reason only.
func SettleReplyOf(code fsm.Code) Reply {
	v := ReplyOf(code)
	if code == fsm.InvalidArgument {
		v.Text = "The changes to the message do not fit: all properties modified so far may together take 64 KiB, a reason and a description 16 KiB each. Change less."
	}
	return v
}
