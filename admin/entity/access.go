package entity

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

// Limits of access rules. The catalog checks again; the texts of errors are here.
const (
	AccessRulesMax       = 12  // of an entity or namespace, as in the cloud
	AccessNameBytesMax   = 256 // of one name
	AccessSecretBytesMax = 256 // of one key; the cloud's are 44 characters of base64
	secretBytes          = 32  // random bytes of a new key, before base64
)

// Rights of an access rule, in the words of the service and in any case. Manage includes all others, and Read is not one of the service.
const (
	RightSend   = "Send"
	RightListen = "Listen"
	RightManage = "Manage"
	RightRead   = "Read"
)

// AccessRuleRequest is the body of PUT /v1/access/{queue or topic}?rule=, and without a name
// in the path that of a rule of the namespace. With &replace=true it changes an existing rule; omitted keys then
// stay, and are random otherwise.
type AccessRuleRequest struct {
	Name         string   `json:"name,omitempty"` // 1 to 256 bytes; as in the parameter, or omitted
	Rights       []string `json:"rights"`
	PrimaryKey   string   `json:"primaryKey,omitempty"` // 16 to 256 bytes, used as written; an existing one may be shorter
	SecondaryKey string   `json:"secondaryKey,omitempty"`
}

// FindAccessRule returns the index of the rule with exactly this name, -1 when there is none.
func FindAccessRule(rules []fsm.AccessRule, name string) int {
	return slices.IndexFunc(rules, func(r fsm.AccessRule) bool { return r.Name == name })
}

// CheckAccessRuleCount returns QuotaExceeded for too many rules.
func CheckAccessRuleCount(rules int) error {
	if rules > AccessRulesMax {
		return fmt.Errorf("%w: there are at most %d access rules to an entity or namespace", fsm.QuotaExceeded, AccessRulesMax)
	}
	return nil
}

// CompleteAccessRules completes and checks rules: an omitted key is that of the old rule of the name, or a random one. Errors
// wrap fsm.InvalidArgument or fsm.QuotaExceeded and hold no key.
func CompleteAccessRules(asked []AccessRuleRequest, old []fsm.AccessRule) ([]fsm.AccessRule, error) {
	rules := make([]fsm.AccessRule, 0, len(asked))
	for _, a := range asked {
		rule := fsm.AccessRule{Name: a.Name, Primary: a.PrimaryKey, Secondary: a.SecondaryKey}
		kept := []string{""} // secrets that may be short because they exist already
		if i := FindAccessRule(old, a.Name); i >= 0 {
			kept = append(kept, old[i].Primary, old[i].Secondary)
			if rule.Primary == "" {
				rule.Primary = old[i].Primary
			}
			if rule.Secondary == "" {
				rule.Secondary = old[i].Secondary
			}
		} else {
			if rule.Primary == "" {
				rule.Primary = NewSecret()
			}
			if rule.Secondary == "" {
				rule.Secondary = NewSecret()
			}
		}
		var err error
		if rule.Rights, err = parseRights(a.Rights); err == nil {
			err = checkAccess(rule)
		}
		if err == nil {
			err = checkNewSecrets(rule, kept)
		}
		if err == nil && FindAccessRule(rules, a.Name) >= 0 {
			err = errors.New("it is given twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: access rule %.60q: %w", fsm.InvalidArgument, a.Name, err)
		}
		rules = append(rules, rule)
	}
	return rules, CheckAccessRuleCount(len(rules))
}

func checkAccess(rule fsm.AccessRule) error {
	if rule.Name == "" || len(rule.Name) > AccessNameBytesMax || !isPrintable(rule.Name) {
		return fmt.Errorf("a name is 1 to %d bytes of text without control characters", AccessNameBytesMax)
	}
	for _, secret := range []string{rule.Primary, rule.Secondary} {
		if len(secret) > AccessSecretBytesMax || !isPrintable(secret) {
			return fmt.Errorf("a key is 1 to %d bytes of text without control characters", AccessSecretBytesMax)
		}
	}
	return nil
}

// checkNewSecrets refuses short secrets, except those that the rule has already.
func checkNewSecrets(rule fsm.AccessRule, kept []string) error {
	for _, secret := range []string{rule.Primary, rule.Secondary} {
		if len(secret) < auth.SecretBytesMin && !slices.Contains(kept, secret) {
			return fmt.Errorf("a new key has at least %d bytes: give a longer one, or none to get a random one", auth.SecretBytesMin)
		}
	}
	return nil
}

// isPrintable reports whether a text is valid UTF-8 without control characters.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// parseRights parses the words of rights, in any case.
func parseRights(words []string) (fsm.Rights, error) {
	var rights fsm.Rights
	for _, word := range words {
		right, ok := auth.ParseRight(word)
		if !ok {
			return 0, fmt.Errorf("rights are %s, %s, %s and %s, not %.40q", RightRead, RightSend, RightListen, RightManage, word)
		}
		rights |= right
	}
	if rights == 0 {
		return 0, fmt.Errorf("it has no rights: give at least one of %s, %s, %s and %s", RightRead, RightSend, RightListen, RightManage)
	}
	return auth.WithoutIncluded(rights), nil
}

// RightNames returns the words of rights in the order of the service, Read last.
func RightNames(rights fsm.Rights) []string {
	var words []string
	for _, r := range []struct {
		right fsm.Rights
		word  string
	}{{fsm.Manage, RightManage}, {fsm.Send, RightSend}, {fsm.Listen, RightListen}, {fsm.Read, RightRead}} {
		if rights&r.right == r.right {
			words = append(words, r.word)
		}
	}
	return words
}

// NewSecret returns a random key like those of the cloud: 44 characters of base64.
func NewSecret() string {
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	return base64.StdEncoding.EncodeToString(secret[:])
}
