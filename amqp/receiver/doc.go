// Package receiver searches an entity for messages instead of waiting for them at the leader: Browser shows
// messages without removing them, and Consumer locks those that a selector selects. Both peek through the
// methods of the broker in Broker, and have the methods of amqp.Receiver, which the gateway (amqp) calls. The
// package knows nothing of connections, links or frames.
//
// Concurrency: at most one Lock of a Browser or Consumer is outstanding, and it runs on a goroutine of its own.
// search guards what Cancel, Close and Consumer.Returned share with that goroutine by its own mutex; only the
// goroutine uses everything else. The links of a connection share one Work.
package receiver
