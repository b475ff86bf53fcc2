package entity

import (
	"strings"

	"github.com/peeklock/peeklock/fsm"
)

// ReadBack are settings without effect, which clients of the service's API read back as they gave them. The other
// APIs do not have them. A setting that is nil stays as it is.
type ReadBack struct {
	BatchedOperations *bool // EnableBatchedOperations
	SupportOrdering   *bool
	Express           *bool // EnableExpress
	// ForwardToBase and ForwardDeadLettersToBase are what SplitDestination found before the name.
	ForwardToBase, ForwardDeadLettersToBase string
}

// storeIn stores the settings that are given. The base of a destination belongs to the name that is given with it.
func (b *ReadBack) storeIn(stored *fsm.EntitySettings, given *Settings) {
	if b.BatchedOperations != nil {
		stored.BatchedOperations = fsm.Choose(*b.BatchedOperations)
	}
	if b.SupportOrdering != nil {
		stored.Ordering = fsm.Choose(*b.SupportOrdering)
	}
	if b.Express != nil {
		stored.Express = *b.Express
	}
	if given.ForwardTo != nil {
		stored.ForwardToBase = b.ForwardToBase
	}
	if given.ForwardDeadLetteredMessagesTo != nil {
		stored.ForwardDeadLettersToBase = b.ForwardDeadLettersToBase
	}
}

// SplitDestination splits a destination that ParseDestination accepts: base is the URL before the name, "" where only the
// name is given.
func SplitDestination(text string) (base, name string, err error) {
	if name, err = ParseDestination(text); err != nil || name == "" {
		return "", name, err
	}
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return "", name, nil
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + "/", name, nil
}
