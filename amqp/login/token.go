package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/address"
	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// SharedAccessPrefix is the prefix of a shared access signature, SharedAccessKind its type for the Authorizer.
const (
	SharedAccessPrefix = "SharedAccessSignature "
	SharedAccessKind   = "servicebus.windows.net:sastoken"
)

// PutTokenWithin limits the time of one put-token.
const PutTokenWithin = 20 * time.Second

// PutToken is the operation of $cbs: it makes a credential valid for its scope and everything below, on this
// connection (docs/service-bus-protocol.md#put-token). kind and audience are what the client named. The expiration that
// clients send with the token is ignored, because the token contains its own. The mutex is not held.
func (c *Credentials) PutToken(ctx context.Context, token, kind, audience string) refusal.Reply {
	ctx, cancel := context.WithTimeout(ctx, PutTokenWithin)
	defer cancel()
	if token == "" {
		return refusal.Reply{Cause: refusal.New(wire.ConditionArgumentError, "The request has no token. Put one into its body."), Status: http.StatusBadRequest}
	}
	if strings.HasPrefix(token, SharedAccessPrefix) {
		kind = SharedAccessKind // Python 7.15 sends "jwt" as the type of these too
	}
	allowed, err := c.config.Authorizer.Token(ctx, c.client(), kind, token, audience)
	if err != nil {
		c.config.Conn.CountRefused()
		return tokenRefused(err)
	}
	if allowed.OfEntity && allowed.Path == "" {
		return tokenRefused(fmt.Errorf("%w: it was authorized for another place", fsm.Unauthorized))
	}
	held := grant{Grant: allowed, kind: kindBearer}
	if kind == SharedAccessKind {
		held.kind = kindSharedAccess
	}
	// The cloud reports a missing entity already here: the Go client returns its CodeNotFound only for this
	// answer. Other errors are reported at the attach.
	entity, _ := address.CutManagement(allowed.Path)
	if entity != "" {
		var code fsm.Code
		if _, err := c.config.Broker.Resolve(ctx, allowed.Namespace, entity); errors.As(err, &code) && code == fsm.EntityNotFound {
			return refusal.ReplyOf(fsm.EntityNotFound).WithEntity(c.config.Conn.URLOf(entity))
		}
	}
	c.config.Conn.Lock()
	defer c.config.Conn.Unlock()
	if c.config.Conn.Closing() {
		return tokenAccepted()
	}
	switch {
	case allowed.OwnNamespace && !c.authenticated:
		c.namespace = allowed.Namespace
	case c.namespace != allowed.Namespace:
		return tokenRefused(fmt.Errorf("%w: the connection is in the namespace of the key of its first token, and this key has another one: open a connection for each of them", fsm.Unauthorized))
	}
	c.auditLoginOnce(ctx, held)
	if !c.add(ctx, held, time.Now()) {
		return refusal.Reply{Cause: refusal.AfterChange(wire.ConditionResourceLimitExceeded, "The connection has put tokens for too many audiences. Use one for the namespace, or more connections."), Status: http.StatusForbidden}
	}
	return tokenAccepted()
}

// tokenRefused returns the reply to a token that the Authorizer does not accept. The status is never 403,
// which .NET reports as an exceeded limit. A token that was not verified, or that follows too many failures,
// gets a status after which clients retry.
func tokenRefused(err error) refusal.Reply {
	reply := refusal.ReplyOf(fsm.Unauthorized)
	var expired interface {
		error
		ExpiredAt() time.Time
	}
	switch code, known := refusal.CodeOfError(err); {
	case errors.As(err, &expired):
		reply.Text = expired.Error() + " Put a new token."
		return reply
	case known && code == fsm.InvalidArgument:
		reply = refusal.ReplyOf(fsm.InvalidArgument)
		reply.Text = "The token cannot be read: " + err.Error() + ". Correct it."
		return reply
	case known && (code == fsm.ServerBusy || code == fsm.Timeout), errors.Is(err, context.DeadlineExceeded):
		reply = refusal.ReplyOf(fsm.ServerBusy)
		reply.Text = "The token was not accepted: " + err.Error() + "."
		return reply
	}
	reply.Text = "The token was refused: " + err.Error() + ". Use a valid key or token."
	return reply
}

// tokenAccepted returns the reply to a valid token.
func tokenAccepted() refusal.Reply {
	return refusal.Reply{Cause: refusal.Cause{Text: "Accepted"}, Status: http.StatusAccepted}
}
