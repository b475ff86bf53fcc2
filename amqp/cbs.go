package amqp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// What a shared access signature begins with, and the type that tells the Authorizer so.
const (
	sharedAccessPrefix = "SharedAccessSignature "
	sharedAccessKind   = "servicebus.windows.net:sastoken"
)

// putToken is the operation of $cbs: it lets a credential count for an audience and
// everything below it, on this connection (wire contract 2.2). The expiration that
// clients send beside the token is not looked at: the token says it itself.
func (c *conn) putToken(ctx context.Context, r *request) {
	defer c.recovered(ctx)
	ctx, cancel := context.WithTimeout(ctx, putTokenWithin)
	defer cancel()
	c.respond(ctx, r, c.admitToken(ctx, r))
}

func (c *conn) admitToken(ctx context.Context, r *request) response {
	token, audience := textOf(r.body), r.argument("name")
	path, ok := audiencePath(audience)
	switch {
	case token == "":
		return badRequest("The request has no token.")
	case !ok:
		return badRequest("The audience is not a valid address.")
	}
	kind := r.argument("type")
	if strings.HasPrefix(token, sharedAccessPrefix) {
		kind = sharedAccessKind // Python 7.15 says "jwt" of these too
	}
	grant, err := c.config.Authorizer.Token(ctx, kind, token, audience)
	if err != nil {
		// Never 403: .NET shows that as an exceeded limit.
		return response{status: http.StatusUnauthorized, condition: wire.ConditionUnauthorizedAccess, text: err.Error()}
	}
	// The cloud says here already that there is no such entity: only from this answer
	// does the Go client make its CodeNotFound. Any other trouble shows at the attach.
	entity, _ := cutManagement(path)
	if entity != "" {
		var code fsm.Code
		if _, err := c.config.Broker.Resolve(ctx, entity); errors.As(err, &code) && code == fsm.EntityNotFound {
			return response{status: http.StatusNotFound, condition: wire.ConditionNotFound, text: notFoundText(entity)}
		}
	}
	c.mu.Lock()
	defer c.unlock()
	if c.phase >= closing {
		return response{status: http.StatusAccepted}
	}
	if !c.grants.put(path, grant, time.Now()) {
		return response{status: http.StatusForbidden, condition: wire.ConditionResourceLimitExceeded, text: "The connection has put tokens for too many audiences."}
	}
	c.proven = true
	c.retime()
	return response{status: http.StatusAccepted, text: "Accepted"}
}
