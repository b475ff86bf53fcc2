// Package rawamqp is an AMQP 1.0 client that sends and receives single frames. Tests use it for
// what client libraries cannot do: transactions in Go, and the frames of hostile or broken clients.
//
// It returns errors and does not import package testing, so that tests can use it in goroutines and
// against members that end its connection on purpose. It answers nothing automatically: it sends no
// heartbeats, and updates no windows or credit.
package rawamqp
