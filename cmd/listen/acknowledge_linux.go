package listen

import "syscall"

// acknowledgeTCP sends a delayed acknowledgement now, and lets the kernel delay the next ones only when it finds
// that both sides send by turns.
func acknowledgeTCP(conn syscall.Conn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return // the connection is closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
	})
}
