package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// accessPages is an accessSource in memory.
type accessPages struct {
	namespaces []fsm.Namespace
	entities   map[fsm.NamespaceID]map[fsm.EntityKind][]fsm.Entity
	err        error
}

func (a *accessPages) Namespaces(_ context.Context, after string, max int) ([]fsm.Namespace, error) {
	i := 1 + slices.IndexFunc(a.namespaces, func(n fsm.Namespace) bool { return n.Name == after })
	return a.namespaces[i:min(i+max, len(a.namespaces))], nil
}

func (a *accessPages) Entities(_ context.Context, in fsm.NamespaceID, kind fsm.EntityKind, after string, max int) ([]fsm.Entity, error) {
	list := a.entities[in][kind]
	i := 1 + slices.IndexFunc(list, func(e fsm.Entity) bool { return e.Name == after })
	return list[i:min(i+max, len(list))], a.err
}

// Every short stored key is found, wherever it is, and logged without its secret. Of a large number, some are
// logged, with the number of the others.
func TestShortStoredKeysAreLogged(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("l", auth.SecretBytesMin)
	rule := func(name, primary, secondary string) []fsm.AccessRule {
		return []fsm.AccessRule{{Name: name, Primary: primary, Secondary: secondary}}
	}
	source := &accessPages{
		namespaces: []fsm.Namespace{{ID: 1, Name: "default", Access: rule("of-namespace", long, "tiny")}, {ID: 2, Name: "shop", Access: rule("fine", long, long)}},
		entities: map[fsm.NamespaceID]map[fsm.EntityKind][]fsm.Entity{
			1: {fsm.QueueEntity: nil, fsm.TopicEntity: {{Name: "t", Access: rule("of-topic", "tiny", "")}}},
			2: {},
		},
	}
	for i := range 2*shortKeysPageMax + 1 {
		source.entities[2] = map[fsm.EntityKind][]fsm.Entity{fsm.QueueEntity: append(source.entities[2][fsm.QueueEntity], fsm.Entity{Name: fmt.Sprintf("q%03d", i), Access: rule("fine", long, "")})}
	}
	last := &source.entities[2][fsm.QueueEntity][2*shortKeysPageMax]
	last.Access = rule("of-last", long, "tiny")
	var out bytes.Buffer
	search := shortKeySearch{from: source, logger: slog.New(slog.NewTextHandler(&out, nil))}
	search.run(t.Context())
	wants(t, out.String(), `namespace=default entity="" name=of-namespace`, "namespace=default entity=t name=of-topic", "namespace=shop entity=q200 name=of-last", "bytes_min=16", "replace it with a random one")
	if strings.Count(out.String(), "\n") != 3 || strings.Contains(out.String(), "tiny") {
		t.Error(out.String())
	}
	for i := range source.entities[2][fsm.QueueEntity] {
		source.entities[2][fsm.QueueEntity][i].Access = rule("short", "tiny", "")
	}
	out.Reset()
	search = shortKeySearch{from: source, logger: search.logger}
	search.run(t.Context())
	wants(t, out.String(), `msg="further short stored keys found" count=103`)
	if n := strings.Count(out.String(), "\n"); n != shortKeysLoggedMax+1 {
		t.Errorf("%d lines", n)
	}
	out.Reset()
	source.err = errors.New("no leader")
	search.run(t.Context())
	wants(t, out.String(), `msg="failed to search for short keys" error="no leader"`)
}
