package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/amqp/account"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of namespaces. The catalog checks again; the texts of errors are here.
const (
	namespaceNameMax     = 50 // characters
	namespaceHostsMax    = 16
	hostBytesMax         = 253        // RFC 1035, 2.3.4
	hostLabelMax         = 63         // bytes, the same
	standardMessageBytes = 256 * 1024 // up to here the service calls a namespace Standard
)

// rootRuleName is the access rule of a new namespace, as in the cloud.
const rootRuleName = "RootManageSharedAccessKey"

const namespaceSettings = "hosts, maxMessageBytes, maxLockDuration, maxEntities, maxBytes, maxMessages, maxRules, userMetadata"

// listNamespaces is GET /v1/namespaces?after=&max=.
func (s *controlAPI) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	limit, err := input.Number(r, "max", pageEntitiesNormal, 1, pageEntitiesMax)
	if err != nil {
		return err
	}
	list, err := s.config.Control.Namespaces(r.Context(), r.URL.Query().Get("after"), limit)
	if err != nil {
		return err
	}
	page := api.NamespacePage{Namespaces: make([]api.Namespace, len(list))}
	for i := range list {
		page.Namespaces[i] = describeNamespace(list[i])
	}
	if len(list) == limit {
		page.Next = list[limit-1].Name
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

// showNamespace is GET /v1/namespaces/{name}. /v1/access shows the keys.
func (s *controlAPI) showNamespace(w http.ResponseWriter, r *http.Request) error {
	namespace, err := s.namespaceInPath(r)
	if err != nil {
		return err
	}
	out := describeNamespace(namespace)
	if s.config.NamespaceUsage != nil {
		u, queuesAndTopics := s.config.NamespaceUsage(namespace.ID)
		out.Usage = &api.NamespaceUsage{QueuesAndTopics: queuesAndTopics, Entities: u.Entities, Messages: u.Messages, Rules: u.Rules, Sessions: u.Sessions, RememberedIDs: u.RememberedIDs, MemoryBytes: u.MemoryBytes, DiskBytes: u.DiskBytes, Shares: s.sharesOf(namespace.ID)}
	}
	s.writeJSON(w, r, http.StatusOK, out)
	return nil
}

// sharesOf returns what a namespace holds of what namespaces and keys share at this member: of what is stored, and of what
// requests hold, if it holds any of that.
func (s *controlAPI) sharesOf(id fsm.NamespaceID) []api.NamespaceShare {
	shares := []api.NamespaceShare{}
	if s.config.NamespaceShares != nil {
		for _, h := range s.config.NamespaceShares(id) {
			shares = append(shares, api.NamespaceShare{Resource: h.Resource, Held: h.Held, Share: h.Share, Largest: h.Largest})
		}
	}
	for r, held := range s.config.Accounts.HeldBy(uint32(id)) {
		if held > 0 {
			of := account.Resource(r)
			shares = append(shares, api.NamespaceShare{Resource: of.String(), Held: uint64(held), Share: uint64(s.config.Accounts.Free(of))})
		}
	}
	return shares
}

// createNamespace is PUT /v1/namespaces/{name}; without a body all settings have their defaults. Its answer is
// the only one about namespaces that contains keys.
func (s *controlAPI) createNamespace(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if err := checkNamespaceName(name); err != nil {
		return err
	}
	var asked api.NamespaceRequest
	if err := input.Decode(r, &asked, namespaceSettings+" and accessRules"); err != nil {
		return err
	}
	settings, err := applyTo(asked.NamespaceSettings, fsm.NamespaceSettings{})
	if err != nil {
		return err
	}
	if len(asked.AccessRules) == 0 {
		asked.AccessRules = []entity.AccessRuleRequest{{Name: rootRuleName, Rights: []string{entity.RightManage}}}
	}
	rules, err := entity.CompleteAccessRules(asked.AccessRules, nil)
	if err != nil {
		return err
	}
	namespace, err := s.config.Control.CreateNamespace(r.Context(), name, settings, rules)
	if err != nil {
		return withNamespaceName(name, err)
	}
	out := describeNamespace(namespace)
	out.AccessRules = describeAccess(namespace.Access, s.endpoint(r, namespace), "")
	s.writeJSON(w, r, http.StatusCreated, out)
	return nil
}

// updateNamespace is PATCH /v1/namespaces/{name}: settings that the body omits are kept.
func (s *controlAPI) updateNamespace(w http.ResponseWriter, r *http.Request) error {
	var asked api.NamespaceSettings
	if err := input.Decode(r, &asked, namespaceSettings); err != nil {
		return err
	}
	namespace, err := s.namespaceInPath(r)
	if err != nil {
		return err
	}
	settings, err := applyTo(asked, namespace.Settings)
	if err != nil {
		return err
	}
	if namespace, err = s.config.Control.UpdateNamespace(r.Context(), namespace.Name, settings); err != nil {
		return withNamespaceName(r.PathValue("name"), err)
	}
	s.writeJSON(w, r, http.StatusOK, describeNamespace(namespace))
	return nil
}

// deleteNamespace is DELETE /v1/namespaces/{name}, which must be empty.
func (s *controlAPI) deleteNamespace(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if err := checkNamespaceName(name); err != nil {
		return err
	}
	if err := s.config.Control.DeleteNamespace(r.Context(), name); err != nil {
		return withNamespaceName(name, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *controlAPI) namespaceInPath(r *http.Request) (fsm.Namespace, error) {
	name := r.PathValue("name")
	if err := checkNamespaceName(name); err != nil {
		return fsm.Namespace{}, err
	}
	namespace, err := s.config.Control.Namespace(r.Context(), name)
	return namespace, withNamespaceName(name, err)
}

// withNamespaceName adds texts to errors about namespaces that have none from the cluster.
func withNamespaceName(name string, err error) error {
	switch {
	case errors.Is(err, fsm.EntityNotFound):
		return fmt.Errorf("%w: there is no namespace '%s': `peeklock namespace list` lists them", fsm.EntityNotFound, name)
	case errors.Is(err, fsm.NotAllowed):
		return fmt.Errorf("%w: the namespace '%s' serves all clients that select no other and cannot be deleted", fsm.NotAllowed, name)
	}
	return err
}

// checkNamespaceName returns an error with advice on how to correct a name. A name is a label of host names,
// but not localhost, which is a name of every machine.
func checkNamespaceName(name string) error {
	if len(name) > namespaceNameMax || !isLabel(name, "-") {
		return fmt.Errorf("%w: the name of a namespace is 1 to %d letters, digits and hyphens inside, not %.60q", fsm.InvalidArgument, namespaceNameMax, name)
	}
	if strings.EqualFold(name, "localhost") {
		return fmt.Errorf("%w: a namespace cannot be called localhost: that host selects the default one", fsm.InvalidArgument)
	}
	return nil
}

// isLabel reports whether a text is a label of a DNS name (RFC 1035, 2.3.1; it may begin with a digit) with more allowed
// characters.
func isLabel(text, more string) bool {
	for _, c := range text {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c) {
			return false
		}
	}
	return text != "" && len(text) <= hostLabelMax && text[0] != '-' && text[len(text)-1] != '-'
}

// applyTo returns old with the given settings, checked.
func applyTo(s api.NamespaceSettings, old fsm.NamespaceSettings) (fsm.NamespaceSettings, error) {
	if s.Hosts != nil {
		hosts, err := parseHosts(s.Hosts)
		if err != nil {
			return old, err
		}
		old.Hosts = hosts
	}
	if n := s.MaxMessageBytes; n != nil {
		if *n != 0 && *n < entity.MessageBytesMin || *n > entity.TierMessageBytesMax {
			return old, fmt.Errorf("%w: maxMessageBytes of a namespace is %d to %d, or 0 for the cluster's, not %d", fsm.InvalidArgument, entity.MessageBytesMin, entity.TierMessageBytesMax, *n)
		}
		old.MessageBytesMax = *n
	}
	if d := s.MaxLockDuration; d != nil {
		if t := time.Duration(*d); t != 0 && t < entity.LockDurationMin || t > entity.TierLockDurationMax {
			return old, fmt.Errorf("%w: maxLockDuration is %s to %s, or 0s for %s, not %s", fsm.InvalidArgument, entity.LockDurationMin, entity.TierLockDurationMax, entity.LockDurationMax, t)
		}
		old.LockDurationMax = entity.ToMillis(*d)
	}
	if s.MaxEntities != nil {
		old.EntitiesMax = *s.MaxEntities
	}
	if s.MaxBytes != nil {
		old.BytesMax = *s.MaxBytes
	}
	if s.MaxMessages != nil {
		old.MessagesMax = *s.MaxMessages
	}
	if s.MaxRules != nil {
		old.RulesMax = *s.MaxRules
	}
	if s.UserMetadata != nil {
		if len(*s.UserMetadata) > entity.UserMetadataBytesMax {
			return old, fmt.Errorf("%w: userMetadata is at most %d bytes long", fsm.InvalidArgument, entity.UserMetadataBytesMax)
		}
		old.UserMetadata = *s.UserMetadata
	}
	return old, nil
}

func parseHosts(given []string) ([]string, error) {
	if len(given) > namespaceHostsMax {
		return nil, fmt.Errorf("%w: a namespace has at most %d hosts, not %d", fsm.InvalidArgument, namespaceHostsMax, len(given))
	}
	hosts := make([]string, 0, len(given))
	for _, host := range given {
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		labels := strings.Split(name, ".")
		_, notNumber := strconv.ParseUint(labels[len(labels)-1], 10, 64) // the last label of an address is one
		if len(name) > hostBytesMax || name == "localhost" || notNumber == nil ||
			slices.ContainsFunc(labels, func(label string) bool { return !isLabel(label, "-_") }) {
			return nil, fmt.Errorf("%w: %.80q is not a host name like orders.example.com, without port", fsm.InvalidArgument, host)
		}
		if slices.Contains(hosts, name) {
			return nil, fmt.Errorf("%w: the host %.80q is given twice", fsm.InvalidArgument, host)
		}
		hosts = append(hosts, name)
	}
	return hosts, nil
}

// describeNamespace returns the JSON form of a namespace, without its keys.
func describeNamespace(n fsm.Namespace) api.Namespace {
	lockDuration := entity.Duration(entity.LimitsOf(n.Settings).LockDuration)
	return api.Namespace{
		Name: n.Name, Version: n.Version, Created: api.ToTime(n.Created), Updated: api.ToTime(n.Updated),
		NamespaceSettings: api.NamespaceSettings{
			Hosts:           append([]string{}, n.Settings.Hosts...),
			MaxMessageBytes: &n.Settings.MessageBytesMax,
			MaxLockDuration: &lockDuration,
			MaxEntities:     &n.Settings.EntitiesMax,
			MaxBytes:        &n.Settings.BytesMax,
			MaxMessages:     &n.Settings.MessagesMax,
			MaxRules:        &n.Settings.RulesMax,
			UserMetadata:    &n.Settings.UserMetadata,
		},
	}
}

// namespaceLimits returns the limits of the namespace of a request.
func (s *core) namespaceLimits(r *http.Request) (entity.Limits, error) {
	namespace, err := s.namespace(r).Describe(r.Context())
	return entity.LimitsOf(namespace.Settings), err
}
