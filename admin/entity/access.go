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

// The rights of an access rule, in the service's words; they are read in any case. Who may
// manage may send and listen, too.
const (
	RightSend   = "Send"
	RightListen = "Listen"
	RightManage = "Manage"
)

// AccessRuleRequest is the body of PUT /v1/access/{queue or topic}?rule=, and without a name
// in the path that of a rule of the namespace. With &replace=true it changes a rule that is
// there; keys that are left out stay then, and are drawn at random otherwise.
type AccessRuleRequest struct {
	Name         string   `json:"name,omitempty"` // 1 to 256 bytes; as in the parameter, or left out
	Rights       []string `json:"rights"`
	PrimaryKey   string   `json:"primaryKey,omitempty"` // 16 to 256 bytes, used as it is written; one that stays may be shorter
	SecondaryKey string   `json:"secondaryKey,omitempty"`
}

// FindAccessRule looks for a rule by its name, which is compared exactly.
func FindAccessRule(rules []fsm.AccessRule, name string) int {
	return slices.IndexFunc(rules, func(r fsm.AccessRule) bool { return r.Name == name })
}

func CheckAccessRuleCount(rules int) error {
	if rules > AccessRulesMax {
		return fmt.Errorf("%w: there are at most %d access rules to an entity or namespace", fsm.QuotaExceeded, AccessRulesMax)
	}
	return nil
}

// CompleteAccessRules completes and checks rules: keys that are left out are those of the old rule of
// that name, and drawn where there is none. Errors name no key.
func CompleteAccessRules(asked []AccessRuleRequest, old []fsm.AccessRule) ([]fsm.AccessRule, error) {
	rules := make([]fsm.AccessRule, 0, len(asked))
	for _, a := range asked {
		rule := fsm.AccessRule{Name: a.Name, Primary: a.PrimaryKey, Secondary: a.SecondaryKey}
		kept := []string{""} // secrets that may be short: they were there before
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
	if rule.Name == "" || len(rule.Name) > AccessNameBytesMax || !IsPrintable(rule.Name) {
		return fmt.Errorf("a name is 1 to %d bytes of text without control characters", AccessNameBytesMax)
	}
	for _, secret := range []string{rule.Primary, rule.Secondary} {
		if len(secret) > AccessSecretBytesMax || !IsPrintable(secret) {
			return fmt.Errorf("a key is 1 to %d bytes of text without control characters", AccessSecretBytesMax)
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

func IsPrintable(text string) bool {
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

// RightNames are the rights in the order of the service.
func RightNames(rights fsm.Rights) []string {
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

// NewSecret draws a key as the cloud does: 44 characters of base64.
func NewSecret() string {
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	return base64.StdEncoding.EncodeToString(secret[:])
}
