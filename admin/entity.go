package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm"
)

// What may be asked of a queue.
const (
	nameCharactersMax  = 260 // of an entity, as in the cloud
	pageQueuesMax      = 1000
	pageQueuesNormal   = 100
	purgeMessagesMax   = 4000 // of one request
	redriveMessagesMax = 1000 // of one request
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
	settings, err := asked.over(defaultSettings())
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
	settings, err := asked.over(entity.Settings.WithDefaults())
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

// purge is POST /v1/purge/{name}: it removes ready messages, oldest first. A count of 0
// says that there are no more; fewer than max do not: what had expired is not counted.
func (s *Server) purge(w http.ResponseWriter, r *http.Request) error {
	name, err := entityName(r)
	if err != nil {
		return err
	}
	asked := PurgeRequest{Max: purgeMessagesMax}
	if err := readBody(r, &asked, "subQueue, before and max"); err != nil {
		return err
	}
	sub := fsm.MainQueue
	switch asked.SubQueue {
	case "", "main":
	case "deadLetter":
		sub = fsm.DeadLetterQueue
	default:
		return fmt.Errorf("%w: subQueue is main or deadLetter, not %.40q", fsm.InvalidArgument, asked.SubQueue)
	}
	if asked.Max < 1 || asked.Max > purgeMessagesMax {
		return fmt.Errorf("%w: max is 1 to %d, not %d", fsm.InvalidArgument, purgeMessagesMax, asked.Max)
	}
	var before time.Time
	if asked.Before != nil {
		before = *asked.Before
	}
	count, err := s.config.Control.PurgeQueue(r.Context(), name, sub, before, asked.Max)
	if err != nil {
		return naming(name, err)
	}
	s.reply(w, r, http.StatusOK, Affected{Count: count})
	return nil
}

// redrive is POST /v1/redrive/{name}: it brings dead letters back to their queue.
func (s *Server) redrive(w http.ResponseWriter, r *http.Request) error {
	name, err := entityName(r)
	if err != nil {
		return err
	}
	var asked RedriveRequest
	if err := readBody(r, &asked, "sequences"); err != nil {
		return err
	}
	if n := len(asked.Sequences); n < 1 || n > redriveMessagesMax {
		return fmt.Errorf("%w: sequences are 1 to %d numbers, not %d", fsm.InvalidArgument, redriveMessagesMax, n)
	}
	count, err := s.config.Control.Redrive(r.Context(), name, asked.Sequences)
	if err != nil {
		return naming(name, err)
	}
	s.reply(w, r, http.StatusOK, Affected{Count: count})
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
