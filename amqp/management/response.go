package management

import (
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/amqp/refusal"
	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm"
)

// Response is the response of a node to one request.
type Response struct {
	refusal.Reply          // its condition is empty on success
	Body          wire.Map // nil for an empty one
	EntityGone    bool     // the entity no longer exists
}

// ResponseFor returns the response for a code.
func ResponseFor(code fsm.Code) Response {
	return Response{Reply: refusal.ReplyOf(code), EntityGone: code == fsm.EntityNotFound}
}

// success returns a response without error.
func success(body wire.Map) Response { return Response{Reply: refusal.ReplyOf(fsm.OK), Body: body} }

// noContent returns the response for an empty result: 204 with a body works with every client
// (docs/service-bus-protocol.md#management-responses).
func noContent(text string, body wire.Map) Response {
	return Response{Reply: refusal.Reply{Cause: refusal.Cause{Text: text}, Status: http.StatusNoContent}, Body: body}
}

// badRequest returns the response to a malformed request.
func badRequest(format string, args ...any) Response {
	return Response{Reply: refusal.Reply{Cause: refusal.New(wire.ConditionArgumentError, format, args...), Status: http.StatusBadRequest}}
}

// UnknownOperation returns the response to an operation that no node has.
func UnknownOperation(operation string) Response {
	resp := ResponseFor(fsm.NotImplemented)
	resp.Text = fmt.Sprintf("The operation '%.64s' is not supported. Do without it.", operation)
	return resp
}
