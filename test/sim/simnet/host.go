package simnet

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Listen opens a port for streams.
func (h *Host) Listen(port int) (net.Listener, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.ended || h.listeners[port] != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, syscall.EADDRINUSE)
	}
	l := &listener{host: h, address: net.TCPAddr{IP: ip(h.number), Port: port}, accepted: make(chan *conn, acceptedMax), closed: make(chan struct{})}
	h.listeners[port] = l
	return l, nil
}

// Dial opens a stream to an ip:port. Over a cut link, and to a host without power, it tries until ctx ends.
func (h *Host) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	to, port, err := parse(address)
	if err != nil {
		return nil, err
	}
	n := h.network
	there, back := Link{h.number, to}, Link{to, h.number}
	for {
		n.mu.Lock()
		trip, connected := n.latency(there)+n.latency(back), !n.isCut(there) && !n.isCut(back)
		n.mu.Unlock()
		if !connected {
			trip = synEvery
		}
		if err := wait(ctx, trip); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		c, err := h.connect(to, port)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: ip(to), Port: port}, Err: err}
		}
		if c != nil {
			return c, nil
		}
	}
}

// wait waits, unless ctx ends first.
func wait(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect makes a stream, and returns nil while the link is cut.
func (h *Host) connect(to, port int) (net.Conn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.ended {
		return nil, net.ErrClosed
	}
	if n.isCut(Link{h.number, to}) || n.isCut(Link{to, h.number}) {
		return nil, nil
	}
	peer := n.hosts[to]
	if peer == nil || peer.listeners[port] == nil {
		return nil, syscall.ECONNREFUSED
	}
	h.nextPort++
	local, remote := net.TCPAddr{IP: ip(h.number), Port: h.nextPort}, net.TCPAddr{IP: ip(to), Port: port}
	out, in := newPipe(n, Link{h.number, to}), newPipe(n, Link{to, h.number})
	out.opposite, in.opposite = in, out
	ours := &conn{network: n, in: in, out: out, local: local, remote: remote}
	theirs := &conn{network: n, in: out, out: in, local: remote, remote: local}
	select {
	case peer.listeners[port].accepted <- theirs:
	default:
		return nil, syscall.ECONNREFUSED
	}
	n.pipes[out], n.pipes[in] = n.piped, n.piped+1
	n.piped += 2
	n.stats.Streams++
	h.conns, peer.conns = append(open(h.conns), ours), append(open(peer.conns), theirs)
	return ours, nil
}

// open removes the closed streams from time to time.
func open(conns []*conn) []*conn {
	if len(conns) < 64 || len(conns) < cap(conns) {
		return conns
	}
	kept := conns[:0]
	for _, c := range conns {
		if !c.in.closed {
			kept = append(kept, c)
		}
	}
	return kept
}

// Kill ends the process: its streams are reset, which its peers notice, and its ports refuse.
func (h *Host) Kill() { h.end(false) }

// PowerOff ends the process and resets no stream. Nothing answers at the host until Network.Start.
func (h *Host) PowerOff() { h.end(true) }

func (h *Host) end(silent bool) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	n.hosts[h.number] = nil
	n.off[h.number] = silent
	for _, l := range h.listeners {
		l.closeLocked()
	}
	for _, c := range h.conns {
		c.endLocked(silent)
	}
	if h.packets != nil {
		h.packets.closeLocked()
	}
}

const acceptedMax = 128 // streams that wait for Accept

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.host.network.mu.Lock()
	defer l.host.network.mu.Unlock()
	l.closeLocked()
	return nil
}

func (l *listener) closeLocked() {
	if l.host.listeners[l.address.Port] != l {
		return
	}
	delete(l.host.listeners, l.address.Port)
	close(l.closed)
	for {
		select {
		case c := <-l.accepted:
			c.closeLocked()
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &l.address }
