package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	// socketName is the control socket in the data folder of a member.
	socketName = "peeklock.sock"
	// socketPathBytesMax is what every system takes: sun_path has 104 bytes on macOS and BSD, 108 on Linux,
	// and one of them ends it.
	socketPathBytesMax = 103
	// socketScheme begins the address of a control socket; what follows is its path as it is.
	socketScheme = "unix://"
	// socketHost is the host of requests through a socket: it selects the default namespace.
	socketHost = "localhost"
)

// checkSocketPath says whether the system can open a socket there.
func checkSocketPath(path string) error {
	if len(path) > socketPathBytesMax {
		return fmt.Errorf("the path of the control socket has %d bytes, and the system takes %d: %s", len(path), socketPathBytesMax, path)
	}
	return nil
}

// listenSocket opens a control socket that its owner alone can connect to. What a process that was killed has left
// there is replaced; a socket that somebody listens on is not, nor is anything else of that name.
//
// The socket is bound in a new folder that is closed to everybody else and then moved: at no moment can others reach
// it, whatever the umask is, and the name changes hands in one step.
func listenSocket(ctx context.Context, path string) (_ net.Listener, err error) {
	if err := checkSocketPath(path); err != nil {
		return nil, err
	}
	if err := socketIsFree(ctx, path); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), "s") // with mode 0700, and a name shorter than socketName
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, os.Remove(folder)) }()
	bound := filepath.Join(folder, "s")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", bound)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if unix, ok := l.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // it would look for it where it was bound
	}
	err = os.Chmod(bound, 0o600)
	if err == nil {
		err = os.Rename(bound, path)
	}
	var own fs.FileInfo
	if err == nil {
		own, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close(), os.RemoveAll(bound))
	}
	return &socketListener{Listener: l, path: path, own: own}, nil
}

// socketIsFree says why a socket cannot be opened at a path.
func socketIsFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the control socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket: remove it, or give another path with --control-socket", path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s is in use: another process listens on it", path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED): // its process was killed
		return nil
	}
	return fmt.Errorf("look who listens on the control socket: %w", err)
}

// socketListener takes its file away when it is closed, unless another process has put its own there.
type socketListener struct {
	net.Listener
	path string
	own  fs.FileInfo
	once sync.Once
}

// Close stops to listen and removes the socket.
func (l *socketListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = l.Listener.Close()
		if now, errNow := os.Lstat(l.path); errNow == nil && os.SameFile(now, l.own) {
			err = errors.Join(err, os.Remove(l.path))
		}
	})
	return err
}

// socketPath is the path in the address of a control socket.
func socketPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, socketScheme)
}

// socketKey is where the context of a request has the path of the socket that it goes to.
type socketKey struct{}

// socketClient is an HTTP client through a control socket. It keeps no connection: another one costs next to nothing.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}
