package admin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// What official administration clients say of themselves, and we of our answers.
const (
	atomType          = "atom+xml" // in Accept or Content-Type
	atomEntryType     = "application/atom+xml;type=entry;charset=utf-8"
	atomFeedType      = "application/atom+xml;type=feed;charset=utf-8"
	atomErrorType     = "application/xml;charset=utf-8"
	versionParameter  = "api-version"
	versionNormal     = "2021-05" // written into links when the client named none
	versionBytesMax   = 16        // longer ones are not written back
	forwardTokenName  = "ServiceBusSupplementaryAuthorization"
	deadForwardHeader = "ServiceBusDlqSupplementaryAuthorization"
)

// isATOM tells the administration API of the service from the control API: by what the
// client says (api-version, or an ATOM media type), else by the path, of which the control
// API has little. So a queue named "health" can be asked for by saying the version.
func isATOM(r *http.Request) bool {
	if r.URL.Query().Has(versionParameter) {
		return true
	}
	for _, header := range []string{"Accept", "Content-Type"} {
		if strings.Contains(strings.ToLower(r.Header.Get(header)), atomType) {
			return true
		}
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch first {
	case "", "v1", "health", "livez", "readyz", "metrics":
		return false
	}
	return true
}

// serveATOM answers one request of the service's administration API.
func (s *Server) serveATOM(w http.ResponseWriter, r *http.Request) {
	t, err := parseATOMPath(r.URL.Path)
	if err != nil {
		var refused error
		if r, refused = s.admit(r, anyKey, ""); refused != nil {
			err = refused
		}
		s.writeProblem(w, r, err)
		return
	}
	if r, err = s.admit(r, t.requiredAccess(r), t.name); err == nil {
		err = s.atomRoute(t, r.Method)(w, r, t)
		if r.Method != http.MethodGet {
			s.auditChange(r, t.auditedChange(r), err)
		}
	}
	if err != nil {
		s.writeProblem(w, r, err)
	}
}

// requiredAccess is what a request wants of its caller's key: one of an entity is good for all but to
// make entities and to list more than its own subscriptions.
func (t atomTarget) requiredAccess(r *http.Request) requiredAccess {
	switch t.resource {
	case atomEntity:
		if r.Method == http.MethodPut && r.Header.Get("If-Match") == "" {
			return manageNamespace
		}
	case atomNamespace:
		return manageNamespace
	case atomList, atomRules, atomRule:
	}
	return manageEntity // lists of queues and topics name none: that is the namespace
}

// auditedChange is what the audit log says of a request. What a path leads to is found out later.
func (t atomTarget) auditedChange(r *http.Request) auditedChange {
	c := auditedChange{operation: "delete", kind: anyEntity, name: t.name, rule: t.rule}
	if t.resource == atomRules || t.resource == atomRule {
		c.kind = "rule"
	}
	switch {
	case r.Method == http.MethodPut && r.Header.Get("If-Match") != "":
		c.operation = "update"
	case r.Method == http.MethodPut:
		c.operation = "create"
	case r.Method != http.MethodDelete:
		c.operation = r.Method
	}
	return c
}

// atomHandler is one operation on a target; its error becomes an Error element.
type atomHandler func(http.ResponseWriter, *http.Request, atomTarget) error

func (s *Server) atomRoute(t atomTarget, method string) atomHandler {
	switch t.resource {
	case atomNamespace:
		if method == http.MethodGet {
			return s.atomNamespaceInfo
		}
	case atomList:
		if method == http.MethodGet {
			return s.atomListEntities
		}
	case atomRules:
		switch method {
		case http.MethodGet:
			return s.atomListRules
		case http.MethodPut: // of the rule that has no name: the default one
			return s.atomPutRule
		}
	case atomEntity:
		switch method {
		case http.MethodGet:
			return s.atomGetEntity
		case http.MethodPut:
			return s.atomPutEntity
		case http.MethodDelete:
			return s.atomDeleteEntity
		}
	case atomRule:
		switch method {
		case http.MethodGet:
			return s.atomGetRule
		case http.MethodPut:
			return s.atomPutRule
		case http.MethodDelete:
			return s.atomDeleteRule
		}
	}
	return func(_ http.ResponseWriter, r *http.Request, _ atomTarget) error {
		return fmt.Errorf("%w: %s cannot be done to %s", fsm.NotAllowed, r.Method, r.URL.Path)
	}
}

// atomFind looks a name up as every kind that it can be: queues and topics share paths.
func (s *Server) atomFind(r *http.Request, t atomTarget) (fsm.Entity, fsm.Counts, error) {
	var found fsm.Entity
	var counts fsm.Counts
	var err error
	for _, kind := range t.kinds() {
		if err = entity.CheckName(kind, t.name); err != nil {
			return found, counts, err
		}
		found, counts, err = s.namespace(r).Entity(r.Context(), kind, t.name)
		if !errors.Is(err, fsm.EntityNotFound) {
			break
		}
	}
	return found, counts, withEntityName(t.name, err)
}

// atomGetEntity is GET /{entity}: settings and runtime properties are one answer.
func (s *Server) atomGetEntity(w http.ResponseWriter, r *http.Request, t atomTarget) error {
	found, counts, err := s.atomFind(r, t)
	if err != nil {
		return err
	}
	s.replyEntity(w, r, http.StatusOK, found, counts)
	return nil
}

// atomPutEntity is PUT /{entity}, which creates, and with If-Match updates. Which kind a
// path without subscription means is said by the element in the body.
func (s *Server) atomPutEntity(w http.ResponseWriter, r *http.Request, t atomTarget) error {
	description, err := readDescription(r.Body)
	if err != nil {
		return err
	}
	kind, err := description.kind(t)
	if err == nil {
		err = entity.CheckName(kind, t.name)
	}
	if err != nil {
		return err
	}
	contextOf(r).kind = kind.String()
	asked, err := description.settings()
	if err == nil {
		err = s.permitForwarding(r, description)
	}
	var access []entity.AccessRuleRequest
	if err == nil {
		access, err = description.access()
	}
	if err != nil {
		return err
	}
	if r.Header.Get("If-Match") != "" {
		return s.atomUpdate(w, r, kind, t.name, asked, access)
	}
	rules, err := entity.CompleteAccessRules(access, nil)
	if err != nil {
		return err
	}
	return s.atomCreate(w, r, kind, t.name, asked, rules, description)
}

func (s *Server) atomCreate(w http.ResponseWriter, r *http.Request, kind fsm.EntityKind, name string, asked entity.Settings, rules []fsm.AccessRule, description *element) error {
	limits, err := s.namespaceLimits(r)
	if err != nil {
		return err
	}
	normal := entity.DefaultSettings(kind)
	normal.LockDuration = fsm.DefaultSettings().LockDuration // the service's, PT1M
	settings, err := asked.ApplyTo(kind, limits.Clamp(normal), limits)
	if err != nil {
		return err
	}
	var rule *fsm.Rule
	if kind == fsm.SubscriptionEntity {
		if rule, err = description.firstRule(); err != nil {
			return err
		}
	}
	found, err := s.namespace(r).CreateEntity(r.Context(), kind, name, settings, rule, rules)
	if err != nil {
		return withNewEntityName(kind, name, err)
	}
	s.replyEntity(w, r, http.StatusCreated, found, fsm.Counts{})
	return nil
}

// atomUpdate lays what is given over what there is. Clients send back what they got, and leave
// out a text to clear it; what the service's API does not know (retryDelay) stays. The access
// rules come last: when the settings are refused, no key has changed.
func (s *Server) atomUpdate(w http.ResponseWriter, r *http.Request, kind fsm.EntityKind, name string, asked entity.Settings, access []entity.AccessRuleRequest) error {
	limits, err := s.namespaceLimits(r)
	if err != nil {
		return err
	}
	found, counts, err := s.namespace(r).Entity(r.Context(), kind, name)
	if err != nil {
		return withEntityName(name, err)
	}
	old := found.Settings.WithDefaults()
	old.UserMetadata, old.ForwardTo, old.ForwardDeadLettersTo = "", "", ""
	settings, err := asked.ApplyTo(kind, old, limits)
	if err != nil {
		return err
	}
	rules, err := entity.CompleteAccessRules(access, found.Access)
	if err != nil {
		return err
	}
	differ := !slices.EqualFunc(rules, found.Access, equalAccessRule)
	if found, err = s.namespace(r).UpdateEntity(r.Context(), kind, name, settings); err != nil {
		return withEntityName(name, err)
	}
	if differ {
		if found, err = s.replaceAccess(r, kind, name, access); err != nil {
			return err
		}
	}
	s.replyEntity(w, r, http.StatusOK, found, counts)
	return nil
}

// atomDeleteEntity is DELETE /{entity}, with everything in it.
func (s *Server) atomDeleteEntity(w http.ResponseWriter, r *http.Request, t atomTarget) error {
	var err error
	for _, kind := range t.kinds() {
		if err = entity.CheckName(kind, t.name); err != nil {
			return err
		}
		if err = s.namespace(r).DeleteEntity(r.Context(), kind, t.name); !errors.Is(err, fsm.EntityNotFound) {
			contextOf(r).kind = kind.String()
			break
		}
	}
	if err != nil {
		return withEntityName(t.name, err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// atomNamespaceInfo is GET /$namespaceinfo. The service sells two sizes of messages; a namespace
// that says nothing of them is like its smaller one.
func (s *Server) atomNamespaceInfo(w http.ResponseWriter, r *http.Request, _ atomTarget) error {
	n, err := s.namespace(r).Describe(r.Context())
	if err != nil {
		return err
	}
	x := newXML()
	x.entry(r, atomItem{path: namespaceWord, title: n.Name, author: n.Name, published: n.Created, updated: n.Updated}, true, func() {
		x.open("NamespaceInfo", "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
		x.time("CreatedTime", n.Created)
		if n.Settings.MessageBytesMax <= standardMessageBytes {
			x.leaf("MessagingSKU", "Standard")
		} else {
			x.leaf("MessagingSKU", "Premium")
			x.number("MessagingUnits", 1)
		}
		x.time("ModifiedTime", n.Updated)
		x.leaf("Name", n.Name)
		x.leaf("NamespaceType", "Messaging")
		x.end("NamespaceInfo")
	})
	s.replyXML(w, http.StatusOK, atomEntryType, x)
	return nil
}

// hostOf is the host by which the client knows this listener, without the port.
func hostOf(r *http.Request) string {
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		return name
	}
	return r.Host
}

// namespaceOf is the namespace by that name: its first label.
func namespaceOf(r *http.Request) string {
	host := hostOf(r)
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return host
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}

// replyXML writes a finished document. The client is gone when writing fails: nothing to do.
func (s *Server) replyXML(w http.ResponseWriter, status int, kind string, x *xmlWriter) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(x.Bytes())
}
