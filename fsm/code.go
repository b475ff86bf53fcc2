package fsm

import "strconv"

// Error implements error: wrap a Code with fmt.Errorf and %w, find it with errors.As. OK is not an
// error.
func (c Code) Error() string { return c.String() }

// String returns the code in words, for messages and logs.
func (c Code) String() string {
	switch c {
	case OK:
		return "ok"
	case EntityNotFound:
		return "entity not found"
	case EntityExists:
		return "entity already exists"
	case MessageLockLost:
		return "message lock lost"
	case MessageNotFound:
		return "message not found"
	case MessageTooLarge:
		return "message too large"
	case QuotaExceeded:
		return "quota exceeded"
	case InvalidArgument:
		return "invalid argument"
	case NotAllowed:
		return "not allowed"
	case Unauthorized:
		return "unauthorized"
	case ServerBusy:
		return "server busy"
	case Timeout:
		return "timeout"
	case Stale:
		return "stale request"
	case Internal:
		return "internal error"
	case NotImplemented:
		return "not implemented"
	case PreconditionFails:
		return "precondition fails"
	case EntityDisabled:
		return "entity disabled"
	case RuleNotFound:
		return "rule not found"
	case RuleExists:
		return "rule already exists"
	case SessionLockLost:
		return "session lock lost"
	case SessionCannotBeLocked:
		return "session cannot be locked"
	case NamespaceFull:
		return "namespace is full"
	}
	return "code " + strconv.Itoa(int(c))
}
