package main

import (
	"context"
	"log/slog"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/cluster/router"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of the search for short keys at the start.
const (
	shortKeysPageMax   = 100 // namespaces or entities per request
	shortKeysLoggedMax = 100 // rules that get a log line each; the others are counted
)

// shortKeyAdvice tells the operator what to do about a short key.
const shortKeyAdvice = "shorter keys can be guessed: replace it with a random one of 32 bytes"

// warnShortKeys logs configured keys that are shorter than the minimum for new keys.
func warnShortKeys(ctx context.Context, keys []auth.Key, logger *slog.Logger) {
	for _, k := range keys {
		if k.HasShortSecret() {
			logger.WarnContext(ctx, "short configured key found", "name", k.Name, "bytes_min", auth.SecretBytesMin, "advice", shortKeyAdvice)
		}
	}
}

// accessSource is the part of the router that the search uses.
type accessSource interface {
	Namespaces(ctx context.Context, after string, max int) ([]fsm.Namespace, error)
	Entities(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, after string, max int) ([]fsm.Entity, error)
}

// accessCatalog uses a router as the source of access rules.
type accessCatalog struct{ router *router.Router }

// Namespaces lists namespaces sorted by name.
func (c accessCatalog) Namespaces(ctx context.Context, after string, max int) ([]fsm.Namespace, error) {
	return c.router.Namespaces(ctx, after, max)
}

// Entities lists the queues or topics of a namespace sorted by name.
func (c accessCatalog) Entities(ctx context.Context, namespace fsm.NamespaceID, kind fsm.EntityKind, after string, max int) ([]fsm.Entity, error) {
	return c.router.In(namespace).Entities(ctx, kind, "", after, max)
}

// shortKeySearch searches all access rules for keys that were created before the minimum length
// existed.
type shortKeySearch struct {
	from   accessSource
	logger *slog.Logger
	found  int
}

// run logs each short key, or why the search failed.
func (s *shortKeySearch) run(ctx context.Context) {
	err := s.namespaces(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.logger.WarnContext(ctx, "failed to search for short keys", "error", err)
	case s.found > shortKeysLoggedMax:
		s.logger.WarnContext(ctx, "further short stored keys found", "count", s.found-shortKeysLoggedMax)
	}
}

func (s *shortKeySearch) namespaces(ctx context.Context) error {
	for after, more := "", true; more; {
		page, err := s.from.Namespaces(ctx, after, shortKeysPageMax)
		if err != nil {
			return err
		}
		for _, namespace := range page {
			s.rules(ctx, namespace.Name, "", namespace.Access)
			for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
				if err := s.entities(ctx, namespace, kind); err != nil {
					return err
				}
			}
			after = namespace.Name
		}
		more = len(page) > 0
	}
	return nil
}

func (s *shortKeySearch) entities(ctx context.Context, namespace fsm.Namespace, kind fsm.EntityKind) error {
	for after, more := "", true; more; {
		page, err := s.from.Entities(ctx, namespace.ID, kind, after, shortKeysPageMax)
		if err != nil {
			return err
		}
		for i := range page {
			s.rules(ctx, namespace.Name, page[i].Name, page[i].Access)
			after = page[i].Name
		}
		more = len(page) > 0
	}
	return nil
}

// rules logs the short keys of a namespace or, if entity is not empty, of an entity.
func (s *shortKeySearch) rules(ctx context.Context, namespace, entity string, rules []fsm.AccessRule) {
	for _, rule := range rules {
		if !(auth.Key{Primary: rule.Primary, Secondary: rule.Secondary}).HasShortSecret() {
			continue
		}
		if s.found++; s.found <= shortKeysLoggedMax {
			s.logger.WarnContext(ctx, "short stored key found", "namespace", namespace, "entity", entity, "name", rule.Name, "bytes_min", auth.SecretBytesMin, "advice", shortKeyAdvice)
		}
	}
}
