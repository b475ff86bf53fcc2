package listen

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/test/kit"
)

// quickAcknowledgement reads the option of a TCP connection.
func quickAcknowledgement(t *testing.T, conn *net.TCPConn) (on bool) {
	t.Helper()
	raw := kit.Must(conn.SyscallConn())(t)
	kit.OK(t, raw.Control(func(fd uintptr) {
		value, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK)
		if err != nil {
			t.Error(err)
		}
		on = value == 1
	}))
	return on
}

// TestAcknowledgementsReachTheSocket checks that the option arrives below every wrapper of a connection.
func TestAcknowledgementsReachTheSocket(t *testing.T) {
	t.Parallel()
	l := listenLoopback(t)
	defer l.Close()
	client := kit.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()))(t)
	defer client.Close()
	accepted := kit.Must(l.Accept())(t)
	defer accepted.Close()
	socket := accepted.(*net.TCPConn)
	plain := &peekedConn{Conn: socket}
	secure := &peekedConn{Conn: tls.Server(plain, &tls.Config{MinVersion: tls.VersionTLS12})}
	for name, conn := range map[string]amqp.AcknowledgingConn{
		"tcp": plain, "tls": secure, "proxy": &proxied{Conn: socket}, "websocket": &webSocket{Conn: secure, transport: newPacedConn(secure)},
	} {
		raw := kit.Must(socket.SyscallConn())(t)
		_ = raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0) })
		if quickAcknowledgement(t, socket) {
			t.Fatal("the option cannot be cleared")
		}
		if conn.AcknowledgeAtOnce(); !quickAcknowledgement(t, socket) {
			t.Errorf("%s: the option is not set", name)
		}
	}
}
