package main

import "context"

// broker opens connections to the members of one product.
type broker interface {
	// connect opens a connection to a member, counted from 0 and taken modulo the number of members.
	connect(ctx context.Context, member int) (connection, error)
}

// connection is one connection of a client. Its methods are called by one goroutine at a time.
type connection interface {
	sender(ctx context.Context, queue string) (sender, error)
	receiver(ctx context.Context, queue string, credit int) (receiver, error)
	close()
}

// sender sends to one queue. One goroutine calls it.
type sender interface {
	// send sends a message without waiting for the broker's answer. It does not keep the body.
	send(ctx context.Context, body []byte) (answer, error)
}

// answer waits until the broker has confirmed a message. It returns an error if the broker refused it.
type answer func(ctx context.Context) error

// receiver receives from one queue. Several goroutines call it.
type receiver interface {
	receive(ctx context.Context) (delivery, error)
}

// delivery is a received message.
type delivery interface {
	body() []byte
	settle(ctx context.Context) error
}
