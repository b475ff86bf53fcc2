package dataplane

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	waitDefault = time.Minute
	waitMax     = 230 * time.Second // load balancers of the service close a silent connection after it

	copiesOfAnswer         = 2         // of a message while it is answered: as it is stored, and decoded
	allowedMessageBytesMax = 100 << 20 // of the largest message that an entity can allow
)

// errSessions is in the words of the service.
var errSessions = &refusal{http.StatusMethodNotAllowed, "It is not possible for an entity that requires sessions to create a non-sessionful message receiver"}

// peekLock waits for a message, and answers with it and where its lock is, or with 204.
func (s *Server) peekLock(r *request) error {
	return s.receive(r, http.StatusCreated, func(d *fsm.Delivery, answer *received) error {
		token := formatToken(s.config.Broker.LockToken(r.at, d.Lock))
		answer.broker["LockToken"] = token
		answer.broker["LockedUntilUtc"] = httpTime(d.LockedUntil)
		scheme := "http"
		if r.from.Secure {
			scheme = "https"
		}
		path := (&url.URL{Path: "/" + r.t.entity + "/messages/" + strconv.FormatUint(uint64(d.Lock.Sequence), 10) + "/" + token}).EscapedPath()
		r.w.Header().Set("Location", scheme+"://"+r.http.Host+path)
		return nil
	})
}

// receiveAndDelete waits for a message, and answers with it when it is deleted, or with 204.
func (s *Server) receiveAndDelete(r *request) error {
	return s.receive(r, http.StatusOK, func(d *fsm.Delivery, _ *received) error {
		code, err := s.end(context.WithoutCancel(r.http.Context()), r.at, d.Lock, fsm.Complete)
		if err == nil && code != fsm.OK {
			err = code
		}
		return err
	})
}

// receive waits for a message, and answers with it after finish, or with 204.
func (s *Server) receive(r *request, status int, finish func(*fsm.Delivery, *received) error) error {
	if r.at.Settings.RequiresSession && r.at.Sub == 0 {
		return errSessions
	}
	wait, err := waitOf(r.http.URL.Query())
	if err != nil {
		return err
	}
	// The server limits the time of requests, and ends their context when a read fails.
	connection := http.NewResponseController(r.w)
	_ = connection.SetReadDeadline(time.Time{})
	_ = connection.SetWriteDeadline(time.Now().Add(wait + answerMax))
	ctx := r.http.Context()
	d, err := s.lock(ctx, r.at, wait)
	if err != nil {
		return err
	}
	if d == nil {
		r.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	err = r.place.hold(int64(copiesOfAnswer * len(d.Payload)))
	var answer *received
	if err == nil {
		answer, err = decode(r.at, d)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.release(r.at, d.Lock)
		return err
	}
	if err := finish(d, answer); err != nil {
		return err
	}
	r.place.give(r.w)
	return answer.write(r.w, status)
}

// waitOf reads the parameter timeout, in seconds.
func waitOf(query url.Values) (time.Duration, error) {
	text := query.Get("timeout")
	if text == "" {
		return waitDefault, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0) {
		return 0, &refusal{http.StatusBadRequest, "timeout is a number of seconds"}
	}
	return time.Duration(min(seconds, waitMax.Seconds()) * float64(time.Second)), nil
}

// lock locks a message, and returns nil if there is none in time. A message that is locked after the client has gone is
// released.
func (s *Server) lock(ctx context.Context, at fsm.EntityRef, wait time.Duration) (*fsm.Delivery, error) {
	receiver := s.config.Broker.Receiver(at, false)
	defer receiver.Close()
	type outcome struct {
		code       fsm.Code
		deliveries []fsm.Delivery
	}
	outcomes := make(chan outcome, 1)
	receiver.Lock(1, 1, wait, func(code fsm.Code, deliveries []fsm.Delivery) { outcomes <- outcome{code, deliveries} })
	var got outcome
	select {
	case got = <-outcomes:
	case <-ctx.Done():
		receiver.Cancel()
		got = <-outcomes
	}
	switch {
	case len(got.deliveries) > 0 && ctx.Err() != nil:
		s.release(at, got.deliveries[0].Lock)
		return nil, context.Cause(ctx)
	case len(got.deliveries) > 0:
		return &got.deliveries[0], nil
	case got.code == fsm.OK, got.code == fsm.Timeout:
		return nil, nil //nolint:nilnil // no message
	}
	return nil, got.code
}

// release gives a message back that no client has got: that is no failed delivery. Without an answer its lock ends.
func (s *Server) release(at fsm.EntityRef, lock fsm.LockID) {
	s.config.Broker.Settle(at, []fsm.Settlement{{Lock: lock, Verb: fsm.Release}}, func([]fsm.Code) {})
}
