package dataplane

import (
	"net/http"

	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/fsm"
)

// row is an operation of the interface. The table has no prices: requests about messages cost what the messages cost over
// AMQP, and are limited by places and by the bytes that they hold (see place).
type row struct {
	operation.Operation
	waits bool // for a message; such requests have places of their own
	serve func(*Server, *request) error
}

// request is an authorized request about an entity.
type request struct {
	w     http.ResponseWriter
	http  *http.Request
	at    fsm.EntityRef
	t     target
	from  Caller
	place *place
}

// target is the entity and message of a request.
type target struct {
	do     *row
	entity string // its path, as the client wrote it
	id     string // message id or sequence number
	token  fsm.LockToken
}
