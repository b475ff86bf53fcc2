package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
)

// listenOn binds host:port. The host "localhost" means both loopback addresses, because clients resolve it to
// either. If the port is in use, the error says so.
func listenOn(ctx context.Context, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, cli.Usagef("%q is not an address: write host:port", address)
	}
	if host == "localhost" {
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, cli.Usagef("%q is not an address: the port must be a number", address)
		}
		return listenLoopback(ctx, number)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, portError(address, err)
	}
	return l, nil
}

// listenLoopback binds the port on 127.0.0.1 and, if the machine has IPv6, on ::1. Port 0 selects a free one.
func listenLoopback(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	v4, err := lc.Listen(ctx, "tcp4", address)
	if err != nil {
		return nil, portError(address, err)
	}
	bound, ok := v4.Addr().(*net.TCPAddr)
	if !ok {
		return v4, nil
	}
	address = net.JoinHostPort("::1", strconv.Itoa(bound.Port))
	v6, err := lc.Listen(ctx, "tcp6", address)
	switch {
	case err == nil:
		return joinListeners(v4, v6), nil
	case errors.Is(err, syscall.EADDRINUSE) && port != 0:
		// Another service on that port would receive some of our clients.
		return nil, errors.Join(portError(address, err), v4.Close())
	}
	return v4, nil // the machine has no IPv6
}

// portError returns a one-line error for a port that cannot be bound.
func portError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port taken: something already listens on %s", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("no permission to listen on %s", address)
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

// joinListeners combines several listeners into one, with the address of the first.
func joinListeners(listeners ...net.Listener) net.Listener {
	j := &multiListener{listeners: listeners, accepted: make(chan accepted), closed: make(chan struct{})}
	for _, l := range listeners {
		j.accepting.Go(func() { j.accept(l) })
	}
	return j
}

type multiListener struct {
	listeners []net.Listener
	accepted  chan accepted
	closed    chan struct{}
	once      sync.Once
	accepting sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func (j *multiListener) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case j.accepted <- accepted{conn, err}:
		case <-j.closed:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept returns the next connection of any of the listeners.
func (j *multiListener) Accept() (net.Conn, error) {
	select {
	case a := <-j.accepted:
		return a.conn, a.err
	case <-j.closed:
		return nil, net.ErrClosed
	}
}

// Close closes all listeners and waits for their loops.
func (j *multiListener) Close() error {
	var err error
	j.once.Do(func() {
		close(j.closed)
		for _, l := range j.listeners {
			err = errors.Join(err, l.Close())
		}
	})
	j.accepting.Wait()
	return err
}

// Addr returns the address of the first listener.
func (j *multiListener) Addr() net.Addr { return j.listeners[0].Addr() }

// Range in which free gossip ports are searched. It is below the range that systems use for outgoing connections
// (from 32768 on Linux, 49152 elsewhere): one of those could be assigned between the search and its use, which
// happens on a machine with many clients.
const (
	gossipPortMin = 15000
	gossipPortMax = 31999
)

// freeGossipPort finds a loopback port that is free for TCP and UDP. Another server could take it before it is
// used; then opening the member fails with an error that says so.
func freeGossipPort(ctx context.Context) (string, error) {
	const tries = 100
	var lc net.ListenConfig
	for range tries {
		port := gossipPortMin + rand.IntN(gossipPortMax-gossipPortMin+1) //nolint:gosec // no secret
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		tcp, err := lc.Listen(ctx, "tcp4", address)
		if err != nil {
			continue
		}
		udp, err := lc.ListenPacket(ctx, "udp4", address)
		if closeErr := tcp.Close(); closeErr != nil {
			return "", fmt.Errorf("find a free port: %w", closeErr)
		}
		if err != nil {
			continue
		}
		if err := udp.Close(); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		return address, nil
	}
	return "", fmt.Errorf("find a free port: none of %d from %d to %d is free for both TCP and UDP", tries, gossipPortMin, gossipPortMax)
}
