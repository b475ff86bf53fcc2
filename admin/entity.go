package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm"
)

// What may be asked of a queue.
const (
	nameCharactersMax   = 260 // of an entity, as in the cloud
	lockDurationMin     = 5 * time.Second
	lockDurationMax     = 5 * time.Minute
	lockDurationDefault = 30 * time.Second
	deliveryCountMax    = 2000
	deliveryCountNormal = 10
	messageBytesMin     = 1024
	messageBytesMax     = 1024 * 1024
	messageBytesNormal  = 256 * 1024
	pageQueuesMax       = 1000
	pageQueuesNormal    = 100
)

// listQueues is GET /v1/queues?after=&max=&counts=true.
func (s *Server) listQueues(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	for key := range query {
		if key != "after" && key != "max" && key != "counts" {
			return fmt.Errorf("%w: unknown parameter %q: after, max and counts are possible", fsm.InvalidArgument, key)
		}
	}
	limit := pageQueuesNormal
	if text := query.Get("max"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > pageQueuesMax {
			return fmt.Errorf("%w: max is a number from 1 to %d", fsm.InvalidArgument, pageQueuesMax)
		}
		limit = n
	}
	withCounts := false
	if text := query.Get("counts"); text != "" {
		var err error
		if withCounts, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%w: counts is true or false", fsm.InvalidArgument)
		}
	}
	entities, err := s.config.Control.Queues(r.Context(), query.Get("after"), limit)
	if err != nil {
		return err
	}
	page := QueuePage{Queues: make([]Queue, len(entities))}
	for i, e := range entities {
		page.Queues[i] = describe(e, nil)
	}
	if len(entities) == limit {
		page.Next = entities[limit-1].Name
	}
	if withCounts && len(entities) > 0 {
		counts, err := s.config.Control.Counts(r.Context(), entities)
		if err != nil {
			return err
		}
		for i := range counts {
			page.Queues[i].Counts = describeCounts(counts[i])
		}
	}
	s.reply(w, r, http.StatusOK, page)
	return nil
}

// showQueue is GET /v1/queues/{name}, always with counts.
func (s *Server) showQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := entityName(r)
	if err != nil {
		return err
	}
	entity, counts, err := s.config.Control.Queue(r.Context(), name)
	if err != nil {
		return naming(name, err)
	}
	s.reply(w, r, http.StatusOK, describe(entity, describeCounts(counts)))
	return nil
}

// createQueue is PUT /v1/queues/{name}; no body means every default.
func (s *Server) createQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := entityName(r)
	if err != nil {
		return err
	}
	asked, err := readSettings(r)
	if err != nil {
		return err
	}
	settings, err := asked.over(fsm.QueueSettings{
		LockDuration:     fsm.Millis(lockDurationDefault.Milliseconds()),
		MaxDeliveryCount: deliveryCountNormal,
		MaxMessageBytes:  messageBytesNormal,
	})
	if err != nil {
		return err
	}
	entity, err := s.config.Control.CreateQueue(r.Context(), name, settings)
	if err != nil {
		return naming(name, err)
	}
	s.reply(w, r, http.StatusCreated, describe(entity, nil))
	return nil
}

// updateQueue is PATCH /v1/queues/{name}: what the body leaves out stays. Two changes
// of different settings at the same moment may lose one: the last write wins.
func (s *Server) updateQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := entityName(r)
	if err != nil {
		return err
	}
	asked, err := readSettings(r)
	if err != nil {
		return err
	}
	entity, _, err := s.config.Control.Queue(r.Context(), name)
	if err != nil {
		return naming(name, err)
	}
	settings, err := asked.over(entity.Settings)
	if err != nil {
		return err
	}
	if entity, err = s.config.Control.UpdateQueue(r.Context(), name, settings); err != nil {
		return naming(name, err)
	}
	s.reply(w, r, http.StatusOK, describe(entity, nil))
	return nil
}

// deleteQueue is DELETE /v1/queues/{name}, with everything in it.
func (s *Server) deleteQueue(w http.ResponseWriter, r *http.Request) error {
	name, err := entityName(r)
	if err != nil {
		return err
	}
	if err := s.config.Control.DeleteQueue(r.Context(), name); err != nil {
		return naming(name, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// naming gives the two answers about existence the texts that official clients look for.
func naming(name string, err error) error {
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return fmt.Errorf("%w: The messaging entity '%s' could not be found.", fsm.EntityNotFound, name) //nolint:staticcheck,revive // a sentence that clients match
	case errors.Is(err, fsm.EntityExists):
		return fmt.Errorf("%w: '%s'", fsm.EntityExists, name)
	}
	return err
}

// entityName is the name in the path, checked as the cloud does: letters, digits and
// . - _ /, beginning and ending with a letter or digit.
func entityName(r *http.Request) (string, error) {
	name := r.PathValue("name")
	if name == "" {
		return "", fmt.Errorf("%w: the path names no queue", fsm.InvalidArgument)
	}
	if utf8.RuneCountInString(name) > nameCharactersMax {
		return "", fmt.Errorf("%w: a name is at most %d characters long", fsm.InvalidArgument, nameCharactersMax)
	}
	plain := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for _, c := range name {
		if !plain(c) && !strings.ContainsRune(".-_/", c) {
			return "", fmt.Errorf("%w: a name has only letters, digits and . - _ /, not %q", fsm.InvalidArgument, c)
		}
	}
	if !plain(rune(name[0])) || !plain(rune(name[len(name)-1])) || strings.Contains(name, "//") {
		return "", fmt.Errorf("%w: a name begins and ends with a letter or digit and has no empty part", fsm.InvalidArgument)
	}
	return name, nil
}

// readSettings reads the body. Unknown fields are refused: a misspelt setting must not
// look as if it worked.
func readSettings(r *http.Request) (Settings, error) {
	var settings Settings
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&settings)
	if err == nil {
		_, err = decoder.Token()
		if err == nil {
			return settings, fmt.Errorf("%w: the body holds more than one JSON value", fsm.InvalidArgument)
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return settings, nil
	case errors.As(err, &tooLarge):
		return settings, fmt.Errorf("%w: the body is longer than %d bytes", fsm.MessageTooLarge, bodyBytesMax)
	}
	return settings, fmt.Errorf("%w: the body: %s; possible are lockDuration, maxDeliveryCount and maxMessageBytes",
		fsm.InvalidArgument, strings.TrimPrefix(err.Error(), "json: "))
}

// over lays the settings that are given over old ones and checks the result.
func (s Settings) over(old fsm.QueueSettings) (fsm.QueueSettings, error) {
	if s.LockDuration != nil {
		d := time.Duration(*s.LockDuration)
		if d < lockDurationMin || d > lockDurationMax {
			return old, fmt.Errorf("%w: lockDuration is %s to %s, not %s", fsm.InvalidArgument, lockDurationMin, lockDurationMax, d)
		}
		old.LockDuration = fsm.Millis(d.Milliseconds())
	}
	if s.MaxDeliveryCount != nil {
		if n := *s.MaxDeliveryCount; n < 1 || n > deliveryCountMax {
			return old, fmt.Errorf("%w: maxDeliveryCount is 1 to %d, not %d", fsm.InvalidArgument, deliveryCountMax, n)
		}
		old.MaxDeliveryCount = *s.MaxDeliveryCount
	}
	if s.MaxMessageBytes != nil {
		if n := *s.MaxMessageBytes; n < messageBytesMin || n > messageBytesMax {
			return old, fmt.Errorf("%w: maxMessageBytes is %d to %d, not %d", fsm.InvalidArgument, messageBytesMin, messageBytesMax, n)
		}
		old.MaxMessageBytes = *s.MaxMessageBytes
	}
	return old, nil
}

func describe(e fsm.Entity, counts *Counts) Queue {
	lock := Duration(time.Duration(e.Settings.LockDuration) * time.Millisecond)
	return Queue{
		Name: e.Name,
		Settings: Settings{
			LockDuration:     &lock,
			MaxDeliveryCount: &e.Settings.MaxDeliveryCount,
			MaxMessageBytes:  &e.Settings.MaxMessageBytes,
		},
		Partition: e.Partition,
		Version:   e.Version,
		Created:   instant(e.Created),
		Updated:   instant(e.Updated),
		Counts:    counts,
	}
}

func describeCounts(c fsm.Counts) *Counts {
	return &Counts{Active: c.Active, Locked: c.Locked, Deferred: c.Deferred, DeadLetter: c.DeadLetter, Bytes: c.Bytes}
}
