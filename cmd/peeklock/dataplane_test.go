package main

import (
	"strings"
	"testing"
)

// Members in containers announce host names that do not resolve outside. The member that answered the request
// accepts AMQP at the same address, so a command tries that address last.
func TestControlAddressIsAFallbackForAMQP(t *testing.T) {
	t.Parallel()
	server := startStub(newStub())
	defer server.Close()
	said := say(t, devMember{Admin: server.URL}, 1, "message", "peek", "orders")
	wants(t, said, "connect to 127.0.0.1:1 with key ", "no --key was given", "connect to "+strings.TrimPrefix(server.URL, "http://"))
}
