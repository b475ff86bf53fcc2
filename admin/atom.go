package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/fsm"
)

// serviceAPI serves the administration API of the service.
type serviceAPI struct {
	*core
	routes map[atomKey]atomRoute
}

// atomKey selects a row of the table: what the path names, the method, and whether a PUT has If-Match and so changes what exists.
type atomKey struct {
	resource atom.Resource
	method   string
	replaces bool
}

// atomRoute is a row of the table of the administration API.
type atomRoute struct {
	operation.Operation
	change string // for the audit log; "": the route changes nothing
	serve  atomHandler
}

// atomHandler is one operation on a target; its error becomes an Error element.
type atomHandler func(http.ResponseWriter, *http.Request, atom.Target) error

// atomEntryBytes bounds the entry of an entity or a rule, in which each byte of a text may take six.
const atomEntryBytes = 192 << 10

// newServiceAPI returns the API with its table. A key of an entity suffices, except to create entities and to list more than
// the subscriptions of its own topic: lists of queues and topics name no entity, and so concern the namespace.
func newServiceAPI(c *core) *serviceAPI {
	s := &serviceAPI{core: c}
	const one, rules = "/{entity...}", "/{topic...}/Subscriptions/{name}/Rules"
	of := func(name, pattern string, right operation.Right, answerBytes int, summary string) operation.Operation {
		status := http.StatusOK
		if strings.HasPrefix(name, "create") {
			status = http.StatusCreated
		}
		return operation.Operation{Name: name, Pattern: pattern, Right: right, Answers: always(answerBytes), Statuses: []int{status}, Summary: summary}
	}
	s.routes = map[atomKey]atomRoute{
		{atom.NamespaceResource, http.MethodGet, false}: {of("getNamespaceInfo", "GET /$namespaceinfo", operation.ManageNamespace, atomEntryBytes, "Shows the namespace."), "", s.atomNamespaceInfo},
		{atom.ListResource, http.MethodGet, false}:      {of("listEntities", "GET /$Resources/Queues", operation.ManageEntity, atomFeedBytesMax, "Lists queues, topics, or the subscriptions of a topic."), "", s.atomListEntities},
		{atom.EntityResource, http.MethodGet, false}:    {of("getEntity", "GET "+one, operation.ManageEntity, atomEntryBytes, "Shows a queue, topic or subscription."), "", s.atomGetEntity},
		{atom.EntityResource, http.MethodPut, false}:    {of("createEntity", "PUT "+one, operation.ManageNamespace, atomEntryBytes, "Creates a queue, topic or subscription."), "create", s.atomPutEntity},
		{atom.EntityResource, http.MethodPut, true}:     {of("updateEntity", "PUT "+one, operation.ManageEntity, atomEntryBytes, "Changes a queue, topic or subscription."), "update", s.atomPutEntity},
		{atom.EntityResource, http.MethodDelete, false}: {of("deleteEntity", "DELETE "+one, operation.ManageEntity, 0, "Deletes a queue, topic or subscription with its messages."), "delete", s.atomDeleteEntity},
		{atom.RulesResource, http.MethodGet, false}:     {of("listRules", "GET "+rules, operation.ManageEntity, atomFeedBytesMax, "Lists the rules of a subscription."), "", s.atomListRules},
		{atom.RulesResource, http.MethodPut, false}:     {of("createDefaultRule", "PUT "+rules, operation.ManageEntity, atomEntryBytes, "Adds the default rule, whose name the path omits."), "create", s.atomPutRule},
		{atom.RuleResource, http.MethodGet, false}:      {of("getRule", "GET "+rules+"/{rule...}", operation.ManageEntity, atomEntryBytes, "Shows a rule."), "", s.atomGetRule},
		{atom.RuleResource, http.MethodPut, false}:      {of("createRule", "PUT "+rules+"/{rule...}", operation.ManageEntity, atomEntryBytes, "Adds a rule to a subscription."), "create", s.atomPutRule},
		{atom.RuleResource, http.MethodPut, true}:       {of("replaceRule", "PUT "+rules+"/{rule...}", operation.ManageEntity, atomEntryBytes, "Replaces a rule of a subscription."), "update", s.atomPutRule},
		{atom.RuleResource, http.MethodDelete, false}:   {of("deleteRule", "DELETE "+rules+"/{rule...}", operation.ManageEntity, 0, "Deletes a rule of a subscription."), "delete", s.atomDeleteRule},
	}
	return s
}

// route returns the row of a request, or one that refuses it.
func (s *serviceAPI) route(r *http.Request, t atom.Target) atomRoute {
	replaces := r.Method == http.MethodPut && r.Header.Get("If-Match") != ""
	if to, ok := s.routes[atomKey{t.Resource, r.Method, replaces}]; ok {
		return to
	}
	refuse := atomRoute{operation.Operation{Right: operation.ManageEntity}, r.Method, func(_ http.ResponseWriter, r *http.Request, t atom.Target) error {
		if replaces && t.Resource == atom.RulesResource {
			return fmt.Errorf("%w: a change of a rule needs its name", fsm.InvalidArgument)
		}
		return fmt.Errorf("%w: %s is not possible for %s", fsm.NotAllowed, r.Method, r.URL.Path)
	}}
	if replaces {
		refuse.change = "update"
	}
	return refuse
}

// serveATOM serves one request of the service's administration API.
func (s *serviceAPI) serveATOM(w http.ResponseWriter, r *http.Request) {
	t, err := atom.ParsePath(r.URL.Path)
	if err != nil {
		var refused error
		if r, refused = s.admit(r, operation.AnyKey, ""); refused != nil {
			err = refused
		}
		s.writeProblem(w, r, err)
		return
	}
	to := s.route(r, t)
	if r, err = s.admit(r, to.Right, t.Name); err != nil {
		err = s.refuseAccess(r, t, err)
	} else {
		if err = expect(r, to.WorkOf(r.URL.Query()), to.AnswerBytesMax(r.URL.Query())); err == nil {
			err = to.serve(w, r, t)
		}
		if to.change != "" {
			s.auditChange(r, to.auditedChange(t), err)
		}
	}
	if err != nil {
		s.writeProblem(w, r, err)
	}
}

// auditedChange returns the description of a request for the audit log. The kind of the entity is determined later.
func (to *atomRoute) auditedChange(t atom.Target) auditedChange {
	c := auditedChange{operation: to.change, kind: anyEntity, name: t.Name, rule: t.Rule}
	if t.Resource == atom.RulesResource || t.Resource == atom.RuleResource {
		c.kind = "rule"
	}
	return c
}

// atomFind looks up an entity of any kind that the name can have: queues and topics share paths.
func (s *serviceAPI) atomFind(r *http.Request, t atom.Target) (fsm.Entity, fsm.Counts, error) {
	var found fsm.Entity
	var counts fsm.Counts
	var err error
	for _, kind := range t.Kinds() {
		if err = entity.CheckName(kind, t.Name); err != nil {
			return found, counts, err
		}
		found, counts, err = s.namespace(r).Entity(r.Context(), kind, t.Name)
		if !errors.Is(err, fsm.EntityNotFound) {
			break
		}
	}
	return found, counts, withEntityName(t.Name, err)
}

// atomGetEntity is GET /{entity}: settings and runtime properties are one answer. The leader of the catalog has been asked
// where a queue or topic does not exist; the answer is then an empty feed, as in the service.
func (s *serviceAPI) atomGetEntity(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	found, counts, err := s.atomFind(r, t)
	if _, _, isSubscription := fsm.SplitSubscriptionPath(t.Name); !isSubscription && errors.Is(err, fsm.EntityNotFound) {
		listedServices(w, r)
		return nil
	}
	if err != nil {
		return err
	}
	return s.replyEntity(w, r, http.StatusOK, found, counts)
}

// listedServices answers with the empty feed of the root, which needs no credential.
func listedServices(w http.ResponseWriter, _ *http.Request) {
	writeDocument(w, http.StatusOK, atom.FeedType, atom.ListedServicesDocument())
}

// atomPutEntity is PUT /{entity}, which creates, and with If-Match updates. Where the path names no
// subscription, the element in the body tells the kind.
func (s *serviceAPI) atomPutEntity(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	description, err := atom.ReadDescription(r.Body)
	if err != nil {
		return err
	}
	kind, err := description.EntityKind(t)
	if err == nil {
		err = entity.CheckName(kind, t.Name)
	}
	if err != nil {
		return err
	}
	contextOf(r).kind = kind.String()
	asked, err := description.Settings()
	if err == nil {
		err = s.permitForwarding(r, description)
	}
	var access []entity.AccessRuleRequest
	if err == nil {
		access, err = description.AccessRules()
	}
	if err != nil {
		return err
	}
	if r.Header.Get("If-Match") != "" {
		return s.atomUpdate(w, r, kind, t.Name, asked, access)
	}
	rules, err := entity.CompleteAccessRules(access, nil)
	if err != nil {
		return err
	}
	return s.atomCreate(w, r, kind, t.Name, asked, rules, description)
}

func (s *serviceAPI) atomCreate(w http.ResponseWriter, r *http.Request, kind fsm.EntityKind, name string, asked entity.Settings, rules []fsm.AccessRule, description *atom.Element) error {
	namespace, err := s.namespace(r).Describe(r.Context())
	if err != nil {
		return err
	}
	limits, normal := entity.LimitsOf(namespace.Settings), entity.DefaultSettings(kind)
	normal.LockDuration = fsm.DefaultSettings().LockDuration // PT1M, the default of the service
	if !atom.IsStandard(namespace.Settings) {
		normal.MaxMessageBytes = premiumMessageBytes
	}
	normal = limits.Clamp(normal)
	if err := checkMessageSize(atomOrigin(r), namespace.Settings, asked, normal.MaxMessageBytes); err != nil {
		return err
	}
	settings, err := asked.ApplyTo(kind, normal, limits)
	if err != nil {
		return err
	}
	var rule *fsm.Rule
	if kind == fsm.SubscriptionEntity {
		if rule, err = description.FirstRule(); err != nil {
			return err
		}
	}
	found, err := s.namespace(r).CreateEntity(r.Context(), kind, name, settings, rule, rules)
	if err != nil {
		return withNewEntityName(kind, name, err)
	}
	return s.replyEntity(w, r, http.StatusCreated, found, fsm.Counts{})
}

// atomUpdate changes the settings that are given. Clients send back what they have read, and omit a text to clear it;
// settings that the API of the service does not have (retryDelay) stay. The access rules are written last: when the
// settings are refused, no key has changed.
func (s *serviceAPI) atomUpdate(w http.ResponseWriter, r *http.Request, kind fsm.EntityKind, name string, asked entity.Settings, access []entity.AccessRuleRequest) error {
	namespace, err := s.namespace(r).Describe(r.Context())
	if err != nil {
		return err
	}
	found, counts, err := s.namespace(r).Entity(r.Context(), kind, name)
	if err != nil {
		return withEntityName(name, err)
	}
	old := found.Settings.WithDefaults()
	o := atomOrigin(r)
	o.Standard = atom.IsStandard(namespace.Settings)
	o.KeepShown(kind, &asked, &old)
	if err := checkMessageSize(o, namespace.Settings, asked, 0); err != nil {
		return err
	}
	old.UserMetadata, old.ForwardTo, old.ForwardDeadLettersTo = "", "", ""
	old.ForwardToBase, old.ForwardDeadLettersToBase = "", ""
	settings, err := asked.ApplyTo(kind, old, entity.LimitsOf(namespace.Settings))
	if err == nil {
		err = checkFixed(kind, old, settings)
	}
	if err != nil {
		return err
	}
	rules, err := completeShownRules(access, found.Access)
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
	return s.replyEntity(w, r, http.StatusOK, found, counts)
}

// atomDeleteEntity is DELETE /{entity}. It deletes the messages, too.
func (s *serviceAPI) atomDeleteEntity(w http.ResponseWriter, r *http.Request, t atom.Target) error {
	var err error
	for _, kind := range t.Kinds() {
		if err = entity.CheckName(kind, t.Name); err != nil {
			return err
		}
		if err = s.namespace(r).DeleteEntity(r.Context(), kind, t.Name); !errors.Is(err, fsm.EntityNotFound) {
			contextOf(r).kind = kind.String()
			break
		}
	}
	if err != nil {
		return withEntityName(t.Name, err)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// atomNamespaceInfo is GET /$namespaceinfo.
func (s *serviceAPI) atomNamespaceInfo(w http.ResponseWriter, r *http.Request, _ atom.Target) error {
	n, err := s.namespace(r).Describe(r.Context())
	if err != nil {
		return err
	}
	writeDocument(w, http.StatusOK, atom.EntryType, atom.NamespaceDocument(atomOrigin(r), n))
	return nil
}

// atomOrigin returns the address by which the client reaches this member.
func atomOrigin(r *http.Request) atom.Origin {
	return atom.Origin{Secure: connection.IsSecure(r), Host: r.Host, Version: r.URL.Query().Get(atom.VersionParameter)}
}

// entityOrigin is atomOrigin for a document about entities. The tier of the namespace matters for partitioned ones.
func (s *serviceAPI) entityOrigin(r *http.Request, entities ...fsm.Entity) (atom.Origin, error) {
	o := atomOrigin(r)
	if !slices.ContainsFunc(entities, func(e fsm.Entity) bool { return e.Settings.EnablePartitioning }) {
		return o, nil
	}
	n, err := s.namespace(r).Describe(r.Context())
	o.Standard = atom.IsStandard(n.Settings)
	return o, err
}

// replyEntity answers with one entity.
func (s *serviceAPI) replyEntity(w http.ResponseWriter, r *http.Request, status int, e fsm.Entity, counts fsm.Counts) error {
	o, err := s.entityOrigin(r, e)
	if err == nil {
		writeDocument(w, status, atom.EntryType, atom.EntityDocument(o, e, counts))
	}
	return err
}

// replaceAccess replaces the access rules of an entity by those of its description and returns the entity. The list is
// complete: the Go client omits an empty one, so no list means no rules.
func (s *serviceAPI) replaceAccess(r *http.Request, kind fsm.EntityKind, name string, asked []entity.AccessRuleRequest) (fsm.Entity, error) {
	err := s.updateAccess(r, name, func(old []fsm.AccessRule) ([]fsm.AccessRule, error) { return completeShownRules(asked, old) })
	s.auditChange(r, auditedChange{operation: "update", kind: "access_rules", name: name}, err)
	if err != nil {
		return fsm.Entity{}, err
	}
	found, _, err := s.namespace(r).Entity(r.Context(), kind, name)
	return found, withEntityName(name, err)
}

// completeShownRules completes the rules of a description, which never shows the right to read: rules keep it, and those without another
// right stay.
func completeShownRules(asked []entity.AccessRuleRequest, old []fsm.AccessRule) ([]fsm.AccessRule, error) {
	rules, err := entity.CompleteAccessRules(asked, old)
	if err != nil {
		return nil, err
	}
	for i, rule := range old {
		at := entity.FindAccessRule(rules, rule.Name)
		switch {
		case rule.Rights&fsm.Read == 0:
		case at >= 0:
			rules[at].Rights = auth.WithoutIncluded(rules[at].Rights | fsm.Read)
		case rule.Rights == fsm.Read:
			rules = slices.Insert(rules, min(i, len(rules)), rule)
		}
	}
	return rules, entity.CheckAccessRuleCount(len(rules))
}

// equalAccessRule ignores the times.
func equalAccessRule(a, b fsm.AccessRule) bool {
	return a.Name == b.Name && a.Primary == b.Primary && a.Secondary == b.Secondary && a.Rights == b.Rights
}
