package amqp

import (
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// response is the response of a node to one request.
type response struct {
	refusal.Reply // its condition is empty on success
	body          wire.Map
	entityGone    bool // the entity no longer exists
}

// responseFor returns the response for a code.
func responseFor(code fsm.Code) response {
	return response{Reply: refusal.ReplyOf(code), entityGone: code == fsm.EntityNotFound}
}

// success returns a response without error.
func success(body wire.Map) response { return response{Reply: refusal.ReplyOf(fsm.OK), body: body} }

// noContent returns the response for an empty result: 204 with a body works with every client
// (docs/service-bus-protocol.md#management-responses).
func noContent(text string, body wire.Map) response {
	return response{Reply: refusal.Reply{Cause: refusal.Cause{Text: text}, Status: http.StatusNoContent}, body: body}
}

// badRequest returns the response to a malformed request.
func badRequest(format string, args ...any) response {
	return response{Reply: refusal.Reply{Cause: refusal.New(wire.ConditionArgumentError, format, args...), Status: http.StatusBadRequest}}
}

func unknownOperation(operation string) response {
	resp := responseFor(fsm.NotImplemented)
	resp.Text = fmt.Sprintf("The operation '%.64s' is not supported. Do without it.", operation)
	return resp
}
