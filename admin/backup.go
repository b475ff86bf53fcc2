package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// The limits of backups. They are the only answers that may take long.
const (
	backupsMax          = 4                // being sent at once
	backupWriteMax      = time.Minute      // for a client to take a piece
	backupDeadlineEvery = 10 * time.Second // how often the deadline is moved
)

// verify is GET /v1/verify/{partition}.
func (s *Server) verify(w http.ResponseWriter, r *http.Request) error {
	id, err := partitionOrCatalogInPath(r)
	if err != nil {
		return err
	}
	found, err := s.config.Control.Verify(r.Context(), id)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, found)
	return nil
}

// backup is GET /v1/backup/{partition}: the copy, as it is made. It may take as long as the
// client goes on reading. When it breaks off the connection does, so that nobody takes a
// part for the whole; the copy ends with a checksum besides.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) error {
	id, err := partitionOrCatalogInPath(r)
	if err != nil {
		return err
	}
	select {
	case s.backups <- struct{}{}:
		defer func() { <-s.backups }()
	default:
		return fmt.Errorf("%w: %d backups are being sent by this member", fsm.ServerBusy, backupsMax)
	}
	// Not the time of a request. Who has gone shows when writing fails.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer s.onClose(cancel)()
	out := &backupWriter{to: w, connection: http.NewResponseController(w)}
	err = s.config.Control.Backup(ctx, id, out)
	if err != nil && out.begun {
		s.auditChange(r, auditedChange{operation: "back up", kind: "partition", name: r.PathValue("name")}, err)
		s.config.Logger.WarnContext(r.Context(), "backup broke off", "partition", id, "error", err.Error())
		panic(http.ErrAbortHandler) // net/http cuts the connection, and logs nothing
	}
	return err
}

// backupWriter sends pieces, each in time.
type backupWriter struct {
	to         http.ResponseWriter
	connection *http.ResponseController
	begun      bool
	moved      time.Time // when the deadline was moved
}

func (b *backupWriter) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.moved) > backupDeadlineEvery {
		b.moved = now
		err := b.connection.SetWriteDeadline(now.Add(backupWriteMax + backupDeadlineEvery))
		if err != nil && !errors.Is(err, http.ErrNotSupported) { // a recorder in a test has none
			return 0, err
		}
	}
	if !b.begun {
		b.begun = true
		b.to.Header().Set("Content-Type", "application/octet-stream")
		b.to.Header().Set("Cache-Control", "no-store")
		b.to.WriteHeader(http.StatusOK)
	}
	return b.to.Write(p)
}
