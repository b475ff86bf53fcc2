package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/peeklock/peeklock/cmd/peeklock/internal/config"
)

// listenSocket opens a control socket that only its owner can connect to. It replaces the socket that a killed
// process left at the path. It fails if another process listens there, or if the file is not a socket.
//
// The socket is bound in a new directory with mode 0700 and then renamed. So other users can never connect,
// whatever the umask is, and the old socket is replaced atomically.
func listenSocket(ctx context.Context, path string) (_ net.Listener, err error) {
	if err := config.CheckSocketPath(path); err != nil {
		return nil, err
	}
	if err := socketIsFree(ctx, path); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), "s") // with mode 0700, and a name shorter than config.SocketName
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
		unix.SetUnlinkOnClose(false) // it would remove the path that was bound, not the renamed one
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

// socketIsFree returns an error if a socket cannot be opened at a path.
func socketIsFree(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("check the control socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket: remove it, or give another path with --control-socket", path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s is in use: another process listens on it", path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED): // the process that bound it was killed
		return nil
	}
	return fmt.Errorf("check whether a process listens on %s: %w", path, err)
}

// socketListener removes its socket when it is closed, unless another process has replaced it.
type socketListener struct {
	net.Listener
	path string
	own  fs.FileInfo
	once sync.Once
}

// Close stops listening and removes the socket.
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
