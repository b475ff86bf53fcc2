// Package rawamqp is an AMQP 1.0 client that speaks frame by frame. Tests use it for what no
// client library does: transactions in Go, and everything that a hostile or broken client sends.
//
// It returns errors and knows nothing of testing, so that it can also run in goroutines and
// against members that end its connection on purpose. Nothing is answered by itself: no
// heartbeat, no window, no credit.
package rawamqp
