package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/fsm"
)

// accessTriesMax is how often a change of access rules is repeated when others come before it.
const accessTriesMax = 5

// accessOwner is an entity with access rules, or the namespace where name is "".
type accessOwner struct {
	name    string // as spelled at creation
	version uint64
	rules   []fsm.AccessRule
}

// accessOwnerOf finds the queue or topic of a path; "" is the namespace.
func (s *core) accessOwnerOf(r *http.Request, path string) (accessOwner, error) {
	if path == "" {
		namespace, err := s.namespace(r).Describe(r.Context())
		return accessOwner{version: namespace.Version, rules: namespace.Access}, err
	}
	var found fsm.Entity
	var err error
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
		if found, _, err = s.namespace(r).Entity(r.Context(), kind, path); !errors.Is(err, fsm.EntityNotFound) {
			break
		}
	}
	return accessOwner{found.Name, found.AccessVersion, found.Access}, withEntityName(path, err)
}

// accessOwnerPath returns the name in the path, checked.
func accessOwnerPath(r *http.Request) (string, error) {
	path := r.PathValue("name")
	if _, _, ok := fsm.SplitSubscriptionPath(path); ok {
		return "", fmt.Errorf("%w: a subscription has the access rules of its topic", fsm.InvalidArgument)
	}
	if path == "" && !strings.HasSuffix(r.URL.Path, "/") {
		return "", nil // the namespace
	}
	return path, entity.CheckName(fsm.QueueEntity, path)
}

// updateAccess reads access rules, changes them and writes them, again when another change came before.
func (s *core) updateAccess(r *http.Request, path string, change func([]fsm.AccessRule) ([]fsm.AccessRule, error)) error {
	var err error
	for range accessTriesMax {
		var h accessOwner
		if h, err = s.accessOwnerOf(r, path); err != nil {
			return err
		}
		var rules []fsm.AccessRule
		if rules, err = change(slices.Clone(h.rules)); err != nil {
			return err
		}
		if err = s.namespace(r).SetAccess(r.Context(), path, h.version, rules); !errors.Is(err, fsm.PreconditionFails) {
			break
		}
	}
	if errors.Is(err, fsm.PreconditionFails) {
		return fmt.Errorf("%w: other clients change these access rules at the same time: try again", fsm.ServerBusy)
	}
	return withEntityName(path, err)
}

// getAccess is GET /v1/access/{queue or topic}, and without a name those of the namespace; with rule= one rule.
func (s *controlAPI) getAccess(w http.ResponseWriter, r *http.Request) error {
	path, err := accessOwnerPath(r)
	if err != nil {
		return err
	}
	if r.URL.Query().Has("rule") {
		return s.replyAccess(w, r, http.StatusOK, path, r.URL.Query().Get("rule"))
	}
	h, err := s.accessOwnerOf(r, path)
	if err != nil {
		return err
	}
	endpoint, err := s.endpointOf(r)
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, api.AccessPage{Rules: describeAccess(h.rules, endpoint, h.name)})
	return nil
}

// replyAccess answers with one rule as the catalog stores it.
func (s *controlAPI) replyAccess(w http.ResponseWriter, r *http.Request, status int, path, rule string) error {
	h, err := s.accessOwnerOf(r, path)
	if err != nil {
		return err
	}
	endpoint, err := s.endpointOf(r)
	if err != nil {
		return err
	}
	i := entity.FindAccessRule(h.rules, rule)
	if i < 0 {
		return accessRuleNotFound(rule)
	}
	s.writeJSON(w, r, status, describeAccess(h.rules[i:i+1], endpoint, h.name)[0])
	return nil
}

// putAccess is PUT /v1/access/{queue or topic}?rule=, which adds a rule; with replace=true it changes
// the rule of that name, which must exist and keeps the keys that are omitted.
func (s *controlAPI) putAccess(w http.ResponseWriter, r *http.Request) error {
	path, rule, err := accessRuleName(r)
	if err != nil {
		return err
	}
	replace, err := input.Bool(r, "replace")
	if err != nil {
		return err
	}
	var asked entity.AccessRuleRequest
	if err := input.Decode(r, &asked, "name, rights, primaryKey, secondaryKey"); err != nil {
		return err
	}
	if asked.Name != "" && asked.Name != rule {
		return fmt.Errorf("%w: the parameter calls the rule %.60q and the body %.60q", fsm.InvalidArgument, rule, asked.Name)
	}
	asked.Name = rule
	err = s.updateAccess(r, path, func(rules []fsm.AccessRule) ([]fsm.AccessRule, error) {
		i := entity.FindAccessRule(rules, rule)
		switch {
		case replace && i < 0:
			return nil, accessRuleNotFound(rule)
		case !replace && i >= 0:
			return nil, fmt.Errorf("%w: the access rule '%s' exists: replace=true changes it", fsm.RuleExists, rule)
		}
		changed, err := entity.CompleteAccessRules([]entity.AccessRuleRequest{asked}, rules)
		switch {
		case err != nil:
			return nil, err
		case i >= 0:
			rules[i] = changed[0]
		default:
			rules = append(rules, changed[0])
		}
		return rules, entity.CheckAccessRuleCount(len(rules))
	})
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if replace {
		status = http.StatusOK
	}
	return s.replyAccess(w, r, status, path, rule)
}

// deleteAccess is DELETE /v1/access/{queue or topic}?rule=. Credentials of the rule are invalid
// within ten seconds.
func (s *controlAPI) deleteAccess(w http.ResponseWriter, r *http.Request) error {
	path, rule, err := accessRuleName(r)
	if err != nil {
		return err
	}
	err = s.updateAccess(r, path, func(rules []fsm.AccessRule) ([]fsm.AccessRule, error) {
		i := entity.FindAccessRule(rules, rule)
		if i < 0 {
			return nil, accessRuleNotFound(rule)
		}
		return slices.Delete(rules, i, i+1), nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// regenerate is POST /v1/regenerate/{queue or topic}: it replaces one key of a rule by a new one.
func (s *controlAPI) regenerate(w http.ResponseWriter, r *http.Request) error {
	path, err := accessOwnerPath(r)
	if err != nil {
		return err
	}
	var asked api.RegenerateRequest
	if err := input.Decode(r, &asked, "rule and which"); err != nil {
		return err
	}
	if asked.Which != api.KeyPrimary && asked.Which != api.KeySecondary {
		return fmt.Errorf("%w: which is %s or %s, not %.40q", fsm.InvalidArgument, api.KeyPrimary, api.KeySecondary, asked.Which)
	}
	contextOf(r).rule = asked.Rule
	err = s.updateAccess(r, path, func(rules []fsm.AccessRule) ([]fsm.AccessRule, error) {
		i := entity.FindAccessRule(rules, asked.Rule)
		switch {
		case i < 0:
			return nil, accessRuleNotFound(asked.Rule)
		case asked.Which == api.KeyPrimary:
			rules[i].Primary = entity.NewSecret()
		default:
			rules[i].Secondary = entity.NewSecret()
		}
		return rules, nil
	})
	if err != nil {
		return err
	}
	return s.replyAccess(w, r, http.StatusOK, path, asked.Rule)
}

func accessRuleName(r *http.Request) (path, rule string, err error) {
	if rule = r.URL.Query().Get("rule"); rule == "" {
		return "", "", fmt.Errorf("%w: name the access rule with ?rule=", fsm.InvalidArgument)
	}
	path, err = accessOwnerPath(r)
	return path, rule, err
}

func accessRuleNotFound(rule string) error {
	return fmt.Errorf("%w: there is no access rule '%.256s'", fsm.RuleNotFound, rule)
}

// describeAccess returns the JSON form of rules, ordered by name, with their keys.
func describeAccess(rules []fsm.AccessRule, endpoint, entityName string) []api.AccessRule {
	list := make([]api.AccessRule, len(rules))
	for i, rule := range rules {
		list[i] = api.AccessRule{
			Name: rule.Name, Rights: entity.RightNames(rule.Rights), PrimaryKey: rule.Primary, SecondaryKey: rule.Secondary,
			PrimaryConnectionString:   connectionString(endpoint, rule.Name, rule.Primary, entityName),
			SecondaryConnectionString: connectionString(endpoint, rule.Name, rule.Secondary, entityName),
			Created:                   api.ToTime(rule.Created), Updated: api.ToTime(rule.Updated),
		}
	}
	slices.SortFunc(list, func(a, b api.AccessRule) int { return strings.Compare(a.Name, b.Name) })
	return list
}
