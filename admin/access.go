package admin

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// What may be asked of access rules. The catalog checks again; the texts are here.
const (
	accessRulesMax       = 12  // of an entity or namespace, as in the cloud
	accessNameBytesMax   = 256 // of one name
	accessSecretBytesMax = 256 // of one key; the cloud's are 44 characters of base64
	accessTriesMax       = 5   // of a change that others come before
	secretBytes          = 32  // drawn for a key, before base64
)

// accessOwner is what has access rules: an entity, or the namespace where name is "".
type accessOwner struct {
	name    string // as spelled at creation
	version uint64
	rules   []fsm.AccessRule
}

// accessOwnerOf finds what a path names: a queue or topic, "" the namespace.
func (s *Server) accessOwnerOf(r *http.Request, path string) (accessOwner, error) {
	if path == "" {
		namespace, err := s.namespace(r).Describe(r.Context())
		return accessOwner{version: namespace.Version, rules: namespace.Access}, err
	}
	var entity fsm.Entity
	var err error
	for _, kind := range []fsm.EntityKind{fsm.QueueEntity, fsm.TopicEntity} {
		if entity, _, err = s.namespace(r).Entity(r.Context(), kind, path); !errors.Is(err, fsm.EntityNotFound) {
			break
		}
	}
	return accessOwner{entity.Name, entity.AccessVersion, entity.Access}, withEntityName(path, err)
}

// accessOwnerPath is the name in the path, checked.
func accessOwnerPath(r *http.Request) (string, error) {
	path := r.PathValue("name")
	if _, _, ok := fsm.SplitSubscriptionPath(path); ok {
		return "", fmt.Errorf("%w: a subscription has the access rules of its topic", fsm.InvalidArgument)
	}
	if path == "" && !strings.HasSuffix(r.URL.Path, "/") {
		return "", nil // the namespace
	}
	return path, checkName(fsm.QueueEntity, path)
}

// updateAccess reads access rules, has them changed and writes them, again when somebody else
// was faster.
func (s *Server) updateAccess(r *http.Request, path string, change func([]fsm.AccessRule) ([]fsm.AccessRule, error)) error {
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
		return fmt.Errorf("%w: others change these access rules all the time", fsm.ServerBusy)
	}
	return withEntityName(path, err)
}

// getAccess is GET /v1/access/{queue or topic}, and without a name that of the namespace; with
// rule= one rule.
func (s *Server) getAccess(w http.ResponseWriter, r *http.Request) error {
	if err := checkParameters(r, "rule"); err != nil {
		return err
	}
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
	s.writeJSON(w, r, http.StatusOK, AccessPage{Rules: describeAccess(h.rules, endpoint, h.name)})
	return nil
}

// replyAccess answers with one rule as the catalog has it.
func (s *Server) replyAccess(w http.ResponseWriter, r *http.Request, status int, path, rule string) error {
	h, err := s.accessOwnerOf(r, path)
	if err != nil {
		return err
	}
	endpoint, err := s.endpointOf(r)
	if err != nil {
		return err
	}
	i := findAccessRule(h.rules, rule)
	if i < 0 {
		return accessRuleNotFound(rule)
	}
	s.writeJSON(w, r, status, describeAccess(h.rules[i:i+1], endpoint, h.name)[0])
	return nil
}

// putAccess is PUT /v1/access/{queue or topic}?rule=, which adds a rule; with replace=true it
// changes the one of that name, which must be there and keeps the keys that are left out.
func (s *Server) putAccess(w http.ResponseWriter, r *http.Request) error {
	path, rule, err := accessRuleName(r, "replace")
	if err != nil {
		return err
	}
	replace, err := boolParameter(r, "replace")
	if err != nil {
		return err
	}
	var asked AccessRuleRequest
	if err := decodeBody(r, &asked, "name, rights, primaryKey, secondaryKey"); err != nil {
		return err
	}
	if asked.Name != "" && asked.Name != rule {
		return fmt.Errorf("%w: the parameter calls the rule %.60q and the body %.60q", fsm.InvalidArgument, rule, asked.Name)
	}
	asked.Name = rule
	err = s.updateAccess(r, path, func(rules []fsm.AccessRule) ([]fsm.AccessRule, error) {
		i := findAccessRule(rules, rule)
		switch {
		case replace && i < 0:
			return nil, accessRuleNotFound(rule)
		case !replace && i >= 0:
			return nil, fmt.Errorf("%w: an access rule '%s' is there: replace=true changes it", fsm.RuleExists, rule)
		}
		changed, err := completeAccessRules([]AccessRuleRequest{asked}, rules)
		switch {
		case err != nil:
			return nil, err
		case i >= 0:
			rules[i] = changed[0]
		default:
			rules = append(rules, changed[0])
		}
		return rules, checkAccessRuleCount(len(rules))
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

// deleteAccess is DELETE /v1/access/{queue or topic}?rule=. Who signs with it is out within ten
// seconds.
func (s *Server) deleteAccess(w http.ResponseWriter, r *http.Request) error {
	path, rule, err := accessRuleName(r)
	if err != nil {
		return err
	}
	err = s.updateAccess(r, path, func(rules []fsm.AccessRule) ([]fsm.AccessRule, error) {
		i := findAccessRule(rules, rule)
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

// regenerate is POST /v1/regenerate/{queue or topic}: one key of a rule is drawn anew.
func (s *Server) regenerate(w http.ResponseWriter, r *http.Request) error {
	if err := checkParameters(r); err != nil {
		return err
	}
	path, err := accessOwnerPath(r)
	if err != nil {
		return err
	}
	var asked RegenerateRequest
	if err := decodeBody(r, &asked, "rule and which"); err != nil {
		return err
	}
	if asked.Which != KeyPrimary && asked.Which != KeySecondary {
		return fmt.Errorf("%w: which is %s or %s, not %.40q", fsm.InvalidArgument, KeyPrimary, KeySecondary, asked.Which)
	}
	contextOf(r).rule = asked.Rule
	err = s.updateAccess(r, path, func(rules []fsm.AccessRule) ([]fsm.AccessRule, error) {
		i := findAccessRule(rules, asked.Rule)
		switch {
		case i < 0:
			return nil, accessRuleNotFound(asked.Rule)
		case asked.Which == KeyPrimary:
			rules[i].Primary = newSecret()
		default:
			rules[i].Secondary = newSecret()
		}
		return rules, nil
	})
	if err != nil {
		return err
	}
	return s.replyAccess(w, r, http.StatusOK, path, asked.Rule)
}

func accessRuleName(r *http.Request, others ...string) (path, rule string, err error) {
	if err := checkParameters(r, append(others, "rule")...); err != nil {
		return "", "", err
	}
	if rule = r.URL.Query().Get("rule"); rule == "" {
		return "", "", fmt.Errorf("%w: which access rule? say so with ?rule=", fsm.InvalidArgument)
	}
	path, err = accessOwnerPath(r)
	return path, rule, err
}

// findAccessRule looks for a rule by its name, which is compared exactly.
func findAccessRule(rules []fsm.AccessRule, name string) int {
	return slices.IndexFunc(rules, func(r fsm.AccessRule) bool { return r.Name == name })
}

func accessRuleNotFound(rule string) error {
	return fmt.Errorf("%w: there is no access rule '%.256s'", fsm.RuleNotFound, rule)
}

func checkAccessRuleCount(rules int) error {
	if rules > accessRulesMax {
		return fmt.Errorf("%w: there are at most %d access rules to an entity or namespace", fsm.QuotaExceeded, accessRulesMax)
	}
	return nil
}

// completeAccessRules completes and checks rules: keys that are left out are those of the old rule of
// that name, and drawn where there is none. Errors name no key.
func completeAccessRules(asked []AccessRuleRequest, old []fsm.AccessRule) ([]fsm.AccessRule, error) {
	rules := make([]fsm.AccessRule, 0, len(asked))
	for _, a := range asked {
		rule := fsm.AccessRule{Name: a.Name, Primary: a.PrimaryKey, Secondary: a.SecondaryKey}
		kept := []string{""} // secrets that may be short: they were there before
		if i := findAccessRule(old, a.Name); i >= 0 {
			kept = append(kept, old[i].Primary, old[i].Secondary)
			if rule.Primary == "" {
				rule.Primary = old[i].Primary
			}
			if rule.Secondary == "" {
				rule.Secondary = old[i].Secondary
			}
		} else {
			if rule.Primary == "" {
				rule.Primary = newSecret()
			}
			if rule.Secondary == "" {
				rule.Secondary = newSecret()
			}
		}
		var err error
		if rule.Rights, err = parseRights(a.Rights); err == nil {
			err = checkAccess(rule)
		}
		if err == nil {
			err = checkNewSecrets(rule, kept)
		}
		if err == nil && findAccessRule(rules, a.Name) >= 0 {
			err = errors.New("it is given twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: access rule %.60q: %w", fsm.InvalidArgument, a.Name, err)
		}
		rules = append(rules, rule)
	}
	return rules, checkAccessRuleCount(len(rules))
}

func checkAccess(rule fsm.AccessRule) error {
	if rule.Name == "" || len(rule.Name) > accessNameBytesMax || !isPrintable(rule.Name) {
		return fmt.Errorf("a name is 1 to %d bytes of text without control characters", accessNameBytesMax)
	}
	for _, secret := range []string{rule.Primary, rule.Secondary} {
		if len(secret) > accessSecretBytesMax || !isPrintable(secret) {
			return fmt.Errorf("a key is 1 to %d bytes of text without control characters", accessSecretBytesMax)
		}
	}
	return nil
}

// checkNewSecrets refuses secrets that are short, but for those of the rule as it was.
func checkNewSecrets(rule fsm.AccessRule, kept []string) error {
	for _, secret := range []string{rule.Primary, rule.Secondary} {
		if len(secret) < auth.SecretBytesMin && !slices.Contains(kept, secret) {
			return fmt.Errorf("a new key has at least %d bytes: give a longer one, or none to have it drawn at random", auth.SecretBytesMin)
		}
	}
	return nil
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// parseRights reads the service's words, in any case. Manage means the other two as well.
func parseRights(words []string) (fsm.Rights, error) {
	var rights fsm.Rights
	for _, word := range words {
		right, ok := auth.ParseRight(word)
		if !ok {
			return 0, fmt.Errorf("rights are %s, %s and %s, not %.40q", RightSend, RightListen, RightManage, word)
		}
		rights |= right
	}
	if rights == 0 {
		return 0, fmt.Errorf("it has no rights: give some of %s, %s and %s", RightSend, RightListen, RightManage)
	}
	return rights, nil
}

// rightNames are the rights in the order of the service.
func rightNames(rights fsm.Rights) []string {
	var words []string
	for _, r := range []struct {
		right fsm.Rights
		word  string
	}{{fsm.Manage, RightManage}, {fsm.Send, RightSend}, {fsm.Listen, RightListen}} {
		if rights&r.right == r.right {
			words = append(words, r.word)
		}
	}
	return words
}

// newSecret draws a key as the cloud does: 44 characters of base64.
func newSecret() string {
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	return base64.StdEncoding.EncodeToString(secret[:])
}

// describeAccess shows rules by name, with their keys.
func describeAccess(rules []fsm.AccessRule, endpoint, entity string) []AccessRule {
	list := make([]AccessRule, len(rules))
	for i, rule := range rules {
		list[i] = AccessRule{
			Name: rule.Name, Rights: rightNames(rule.Rights), PrimaryKey: rule.Primary, SecondaryKey: rule.Secondary,
			PrimaryConnectionString:   connectionString(endpoint, rule.Name, rule.Primary, entity),
			SecondaryConnectionString: connectionString(endpoint, rule.Name, rule.Secondary, entity),
			Created:                   toTime(rule.Created), Updated: toTime(rule.Updated),
		}
	}
	slices.SortFunc(list, func(a, b AccessRule) int { return strings.Compare(a.Name, b.Name) })
	return list
}
