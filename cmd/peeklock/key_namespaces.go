package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

const (
	keyNamespacesMax    = 900              // of the 1000 of a cluster
	keyNamespaceUnused  = 10 * time.Minute // after which one is removed
	keyNamespaceSweep   = 30 * time.Second // between two searches for unused ones
	keyNamespacePrefix  = "key-"
	keyNamespaceLetters = 30 // of the key name, in the name of its namespace
	// keyNamespaceNote marks these namespaces in the catalog, because only they are removed.
	keyNamespaceNote = "of a key name, removed 10 minutes after its last use"
)

// namespaceStore is what keyNamespaces needs of the cluster. Its methods are safe for concurrent use.
type namespaceStore interface {
	// configured returns a further namespace of the configuration that has the key name as its name; 0 if there is none.
	configured(ctx context.Context, keyName string) (fsm.NamespaceID, error)
	// create creates a namespace with the entities of the configuration, or completes one that exists.
	create(ctx context.Context, name string) (fsm.NamespaceID, error)
	// remove deletes a namespace with all that is in it.
	remove(ctx context.Context, name string) error
	exists(id fsm.NamespaceID) bool
	// list returns the names of the namespaces that create has created.
	list(ctx context.Context) ([]string, error)
}

// keyNamespaces gives each key name a namespace of its own, so that tests that run at the same time share one emulator. It
// keeps the real time, whatever the clock of the member shows. It is safe for concurrent use.
type keyNamespaces struct {
	store  namespaceStore
	logger *slog.Logger
	making chan struct{} // one token: held while a namespace is created or removed

	mu    sync.Mutex
	known map[string]*keyNamespace // by the name of the namespace
}

type keyNamespace struct {
	id   fsm.NamespaceID // 0: not known, after a restart
	used time.Time
}

func newKeyNamespaces(store namespaceStore, logger *slog.Logger) *keyNamespaces {
	return &keyNamespaces{store: store, logger: logger, making: make(chan struct{}, 1), known: make(map[string]*keyNamespace)}
}

// keyNamespaceName returns the name of the namespace of a key name: the name of a namespace has fewer characters and no case.
func keyNamespaceName(keyName string) string {
	letters := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(keyName))
	sum := sha256.Sum256([]byte(keyName))
	return keyNamespacePrefix + letters[:min(len(letters), keyNamespaceLetters)] + "-" + hex.EncodeToString(sum[:6])
}

// open returns the namespace of a key name: one of the configuration, or its own, which it creates if needed. alive counts as a use, and reports whether the namespace
// still exists. Errors wrap fsm.ServerBusy.
func (k *keyNamespaces) open(ctx context.Context, keyName string) (id fsm.NamespaceID, alive func() bool, err error) {
	id, err = k.store.configured(ctx, keyName)
	if id != 0 || err != nil {
		return id, func() bool { return k.store.exists(id) }, err
	}
	name := keyNamespaceName(keyName)
	if id = k.use(name); id == 0 {
		if id, err = k.create(ctx, name); err != nil {
			return 0, nil, err
		}
	}
	return id, func() bool { return k.use(name) == id }, nil
}

// use records the use of a namespace; 0 if there is none of this name.
func (k *keyNamespaces) use(name string) fsm.NamespaceID {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.known[name]
	if n == nil || n.id == 0 || !k.store.exists(n.id) {
		return 0
	}
	n.used = time.Now()
	return n.id
}

func (k *keyNamespaces) create(ctx context.Context, name string) (fsm.NamespaceID, error) {
	select {
	case k.making <- struct{}{}:
		defer func() { <-k.making }()
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: other namespaces are being created: try again", fsm.ServerBusy)
	}
	if id := k.use(name); id != 0 { // another request for it was first
		return id, nil
	}
	k.mu.Lock()
	full := k.known[name] == nil && len(k.known) >= keyNamespacesMax
	k.mu.Unlock()
	if full {
		return 0, fmt.Errorf("%w: %d key names have a namespace: try again when one has been unused for %s", fsm.ServerBusy, keyNamespacesMax, keyNamespaceUnused)
	}
	id, err := k.store.create(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("%w: create the namespace of the key: %w", fsm.ServerBusy, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[name] = &keyNamespace{id, time.Now()}
	return id, nil
}

// run removes unused namespaces until ctx ends.
func (k *keyNamespaces) run(ctx context.Context) {
	names, err := k.store.list(ctx) // of kept data
	if err != nil {
		k.logger.WarnContext(ctx, "failed to list the namespaces of key names", "error", err)
	}
	k.mu.Lock()
	for _, name := range names {
		if k.known[name] == nil {
			k.known[name] = &keyNamespace{used: time.Now()}
		}
	}
	k.mu.Unlock()
	tick := time.NewTicker(keyNamespaceSweep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.sweep(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// sweep removes the namespaces that are unused. One that cannot be removed is tried again after as long.
func (k *keyNamespaces) sweep(ctx context.Context) {
	k.making <- struct{}{}
	defer func() { <-k.making }()
	var unused []string
	k.mu.Lock()
	for name, n := range k.known {
		if time.Since(n.used) >= keyNamespaceUnused {
			unused = append(unused, name)
			delete(k.known, name)
		}
	}
	k.mu.Unlock()
	for _, name := range unused {
		if err := k.store.remove(ctx, name); err != nil && !errors.Is(err, fsm.EntityNotFound) {
			k.logger.WarnContext(ctx, "failed to remove the namespace of a key name", "namespace", name, "error", err)
			k.mu.Lock()
			k.known[name] = &keyNamespace{used: time.Now()}
			k.mu.Unlock()
		}
	}
}

// emulatorNamespaces is the namespaceStore of an emulator.
type emulatorNamespaces struct {
	control

	listed  *emulatorConfig
	lenient bool
}

func (s emulatorNamespaces) configured(ctx context.Context, keyName string) (fsm.NamespaceID, error) {
	for i, name := range s.listed.file.Namespaces() {
		if i > 0 && name == keyName {
			space, err := s.Namespace(ctx, name)
			return space.ID, err
		}
	}
	return 0, nil
}

func (s emulatorNamespaces) create(ctx context.Context, name string) (fsm.NamespaceID, error) {
	space, err := s.CreateNamespace(ctx, name, fsm.NamespaceSettings{UserMetadata: keyNamespaceNote}, nil)
	if errors.Is(err, fsm.EntityExists) {
		space, err = s.Namespace(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	report, err := s.listed.file.ApplyTo(ctx, emulatorControl{s.control}, space)
	if err == nil && len(report.Problems) > 0 && !s.lenient {
		err = errors.New(strings.Join(report.Problems, "; "))
	}
	return space.ID, err
}

func (s emulatorNamespaces) remove(ctx context.Context, name string) error {
	space, err := s.Namespace(ctx, name)
	if err != nil {
		return err
	}
	return s.empty(ctx, space)
}

func (s emulatorNamespaces) exists(id fsm.NamespaceID) bool { return s.NamespaceName(id) != "" }

func (s emulatorNamespaces) list(ctx context.Context) ([]string, error) {
	var names []string
	for after := ""; ; {
		page, err := s.Namespaces(ctx, after, entitiesPage)
		if err != nil || len(page) == 0 {
			return names, err
		}
		for i := range page {
			if after = page[i].Name; page[i].Settings.UserMetadata == keyNamespaceNote {
				names = append(names, after)
			}
		}
	}
}
