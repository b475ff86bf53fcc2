package entities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// defaultLockDurationMax is the longest lock in a namespace without its own limit, as in the cloud service.
const defaultLockDurationMax = fsm.Millis(5 * 60 * 1000)

// namespaceLimits returns the namespace, with its limits, as the catalog's leader knows it.
func (r NamespaceView) namespaceLimits(ctx context.Context) (fsm.Namespace, error) {
	if !r.replicas.CatalogLoaded() {
		return fsm.Namespace{}, fmt.Errorf("the catalog is not loaded: %w", fsm.ServerBusy)
	}
	namespace, err := findNamespace.At(ctx, r, namespaceQuery{ID: r.id})
	if errors.Is(err, fsm.EntityNotFound) {
		err = fmt.Errorf("%w: the namespace does not exist", err)
	}
	return namespace, err
}

// withMessageSize sets an unset message size: to the default, or to the limit of the namespace if
// that is less.
func withMessageSize(namespace *fsm.Namespace, settings fsm.EntitySettings) fsm.EntitySettings {
	if settings.MaxMessageBytes == 0 {
		size := fsm.DefaultSettings().MaxMessageBytes
		settings.MaxMessageBytes = min(size, cmp.Or(namespace.Settings.MessageBytesMax, size))
	}
	return settings
}

// checkLimits refuses settings that exceed a limit of the namespace. Settings that do not change (old;
// zero for a new entity) are not checked, because a later limit does not affect them; nor are those
// without effect for a kind.
func checkLimits(namespace *fsm.Namespace, kind fsm.EntityKind, settings, old fsm.EntitySettings) error {
	tier := namespace.Settings.MessageBytesMax
	if tier != 0 && kind != fsm.SubscriptionEntity && settings.MaxMessageBytes > tier && settings.MaxMessageBytes != old.MaxMessageBytes {
		return fmt.Errorf("%w: messages of up to %d bytes are more than the namespace %q allows (%d)",
			fsm.InvalidArgument, settings.MaxMessageBytes, namespace.Name, tier)
	}
	longest := cmp.Or(namespace.Settings.LockDurationMax, defaultLockDurationMax)
	if kind != fsm.TopicEntity && settings.LockDuration > longest && settings.LockDuration != old.LockDuration {
		return fmt.Errorf("%w: a lock of %v is longer than the namespace %q allows (%v)",
			fsm.InvalidArgument, toDuration(settings.LockDuration), namespace.Name, toDuration(longest))
	}
	return nil
}

func toDuration(d fsm.Millis) time.Duration {
	const most = fsm.Millis(1<<63-1) / fsm.Millis(time.Millisecond)
	return time.Duration(min(d, most)) * time.Millisecond
}

// explainLimits adds the exceeded limit to an error of the catalog.
func explainLimits(namespace *fsm.Namespace, kind fsm.EntityKind, settings fsm.EntitySettings, err error) error {
	if !errors.Is(err, fsm.InvalidArgument) {
		return err
	}
	if over := checkLimits(namespace, kind, settings, fsm.EntitySettings{}); over != nil {
		return over
	}
	return err
}

// explainNamespace adds the likely reason to an error of the catalog about a namespace.
func (r *Manager) explainNamespace(ctx context.Context, name string, settings fsm.NamespaceSettings, err error) error {
	switch {
	case errors.Is(err, fsm.QuotaExceeded):
		return fmt.Errorf("%w: the cluster has reached its limit of namespaces: delete one first", err)
	case !errors.Is(err, fsm.EntityExists):
		return err
	}
	list, listErr := r.Namespaces(ctx, "", namespacesMax)
	if listErr != nil {
		return err
	}
	for i := range list {
		if strings.EqualFold(list[i].Name, name) {
			continue
		}
		for _, host := range list[i].Settings.Hosts {
			for _, wanted := range settings.Hosts {
				if strings.EqualFold(host, wanted) {
					return fmt.Errorf("%w: the host name %q selects the namespace %q", err, host, list[i].Name)
				}
			}
		}
	}
	return err
}
