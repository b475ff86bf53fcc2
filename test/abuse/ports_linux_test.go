package abuse

import "syscall"

// bindAddressNoPort (ip(7)) lets connections from one address to several share local ports: without it, attackers that connect
// again and again use up the ports of the machine.
const bindAddressNoPort = 24

// shareLocalPorts sets it on a socket before it is bound.
func shareLocalPorts(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, bindAddressNoPort, 1) })
	if failed != nil {
		return failed
	}
	return err
}
