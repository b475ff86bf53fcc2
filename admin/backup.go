package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of backups, which are the only long answers.
const (
	backupsMax          = 4                // in flight
	backupWriteMax      = time.Minute      // in which a client must read a piece
	backupDeadlineEvery = 10 * time.Second // how often the deadline is extended
)

// verify is GET /v1/verify/{partition}.
func (s *operatorAPI) verify(w http.ResponseWriter, r *http.Request) error {
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

// backup is GET /v1/backup/{partition}: it streams the copy while it is made, for as long as the client goes on reading.
// An error closes the connection, so that an incomplete copy is not taken for a whole one; the copy also ends with a
// checksum.
func (s *operatorAPI) backup(w http.ResponseWriter, r *http.Request) error {
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
	// The timeout of requests does not apply. A write fails when the client has gone.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer s.onClose(cancel)()
	if answer, ok := w.(*answerWriter); ok {
		answer.streams = true
	}
	out := &backupWriter{to: w, connection: http.NewResponseController(w)}
	err = s.config.Control.Backup(ctx, id, out)
	if err != nil && out.begun {
		s.auditChange(r, auditedChange{operation: "back up", kind: "partition", name: r.PathValue("name")}, err)
		s.config.Logger.WarnContext(r.Context(), "backup aborted", "partition", id, "error", err.Error())
		panic(http.ErrAbortHandler) // net/http closes the connection and logs nothing
	}
	return err
}

// backupWriter extends the write deadline of the connection while pieces are written.
type backupWriter struct {
	to         http.ResponseWriter
	connection *http.ResponseController
	begun      bool
	moved      time.Time // when the deadline was extended
}

func (b *backupWriter) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(b.moved) > backupDeadlineEvery {
		b.moved = now
		err := b.connection.SetWriteDeadline(now.Add(backupWriteMax + backupDeadlineEvery))
		if err != nil && !errors.Is(err, http.ErrNotSupported) { // a test recorder has no deadline
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
