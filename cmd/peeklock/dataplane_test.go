package main

import (
	"strings"
	"testing"
)

// Members in containers tell names that mean nothing outside. The member that was asked speaks
// AMQP where it was asked, so that is where a command connects at last.
func TestControlAddressIsAFallbackForAMQP(t *testing.T) {
	t.Parallel()
	server := startStub(newStub())
	defer server.Close()
	said := say(t, devMember{Admin: server.URL}, 1, "message", "peek", "orders")
	wants(t, said, "connect to 127.0.0.1:1", "connect to "+strings.TrimPrefix(server.URL, "http://"))
}
