package simnet

import (
	"context"
	"net"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
)

// Gossip opens a port for the packets and the streams of gossip.
func (h *Host) Gossip(port int) (gossip.Transport, error) {
	l, err := h.Listen(port)
	if err != nil {
		return nil, err
	}
	t := &packets{
		host: h, port: port, listener: l, received: make(chan *gossip.Packet, packetsQueued),
		streams: make(chan net.Conn), closed: make(chan struct{}),
	}
	h.network.mu.Lock()
	h.packets = t
	h.network.mu.Unlock()
	go t.accept()
	return t, nil
}

func (t *packets) accept() {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			return
		}
		select {
		case t.streams <- c:
		case <-t.closed:
			_ = c.Close()
		}
	}
}

// FinalAdvertiseAddr implements gossip.Transport.
func (t *packets) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return ip(t.host.number), t.port, nil
}

// WriteTo implements gossip.Transport. Packets may overtake each other; over a cut link they are lost.
func (t *packets) WriteTo(data []byte, address string) (time.Time, error) {
	to, _, err := parse(address)
	if err != nil {
		return time.Time{}, err
	}
	n, now := t.host.network, time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.isClosed {
		return now, net.ErrClosed
	}
	over := Link{t.host.number, to}
	n.observe(over, data)
	if n.isCut(over) {
		n.stats.PacketsLost++
		return now, nil
	}
	n.stats.Packets++
	copied := append([]byte(nil), data...)
	time.AfterFunc(n.latency(over), func() { n.deliver(over, copied) })
	return now, nil
}

// deliver hands a packet to the process that runs at its destination now.
func (n *Network) deliver(over Link, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host := n.hosts[over.To]
	if n.isCut(over) || host == nil || host.packets == nil || host.packets.isClosed {
		n.stats.PacketsLost++
		return
	}
	packet := &gossip.Packet{Buf: data, From: &net.UDPAddr{IP: ip(over.From), Port: host.packets.port}, Timestamp: time.Now()}
	select {
	case host.packets.received <- packet:
	default:
		n.stats.PacketsLost++
	}
}

// PacketCh implements gossip.Transport.
func (t *packets) PacketCh() <-chan *gossip.Packet { return t.received }

// DialTimeout implements gossip.Transport.
func (t *packets) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.host.Dial(ctx, "tcp", address)
}

// StreamCh implements gossip.Transport.
func (t *packets) StreamCh() <-chan net.Conn { return t.streams }

// Shutdown implements gossip.Transport.
func (t *packets) Shutdown() error {
	t.host.network.mu.Lock()
	t.closeLocked()
	t.host.network.mu.Unlock()
	return t.listener.Close()
}
