package connlimit

import (
	"net"
	"testing"

	"github.com/peeklock/peeklock/test/kit"
)

func TestConnectionsCountForAnAddressOrItsPrefix(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7", "[::ffff:192.0.2.7]:1": "192.0.2.7", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::", "[fe80::1%lo]:1": "fe80::",
	} {
		tcp := kit.Must(net.ResolveTCPAddr("tcp", address))(t)
		if got := Source(tcp).String(); got != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
	if got := Source(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("a socket without an IP address counts as %s", got)
	}
}
