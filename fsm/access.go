package fsm

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Validate returns InvalidArgument, as an error, unless every field is in the range that
// [AccessRule] documents. Rights are Send, Listen, both, or Manage.
func (a AccessRule) Validate() error {
	if a.Name == "" || len(a.Name) > accessNameBytesMax || !utf8.ValidString(a.Name) || strings.ContainsFunc(a.Name, isControl) ||
		!validSecret(a.Primary) || a.Secondary != "" && !validSecret(a.Secondary) ||
		a.Rights == 0 || a.Rights > Manage || a.Rights&^(Send|Listen) != 0 && a.Rights != Manage {
		return InvalidArgument
	}
	return nil
}

// isControl reports whether a character must not be repeated in a log or header.
func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

func validSecret(text string) bool {
	return text != "" && len(text) <= accessSecretBytesMax && utf8.ValidString(text)
}

// validAccess reports whether these can be the access rules of an entity or namespace.
func validAccess(rules []AccessRule) bool {
	if len(rules) > AccessRulesMax {
		return false
	}
	for i := range rules {
		if rules[i].Validate() != nil || slices.ContainsFunc(rules[:i], func(a AccessRule) bool { return a.Name == rules[i].Name }) {
			return false
		}
	}
	return true
}
