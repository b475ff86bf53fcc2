package auth

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of what an operator may configure.
const (
	keyNameBytesMax = 256 // of one key name, as in the cloud
	keyBytesMax     = 256 // of one secret; the cloud's are 44 characters of base64
	keysMax         = 12  // authorization rules of one namespace, as in the cloud
)

// SecretBytesMin is the shortest secret that new keys may have, in bytes. What keeps keys from
// being guessed is their length: verification refuses no valid credential, however many
// failed before, so guesses can be tried as fast as they are verified. Keys of the
// configuration and of stored rules may be shorter; members warn of them.
const SecretBytesMin = 16

// DevKeyName and DevKey are the credentials of the official emulator. They are in every
// tutorial, so a member that still has them must not be reachable from outside.
const (
	DevKeyName = "RootManageSharedAccessKey"
	DevKey     = "SAS_KEY_VALUE"
)

// Key is a named pair of secrets with rights in the whole namespace. One secret can be changed while clients use the
// other.
type Key struct {
	Name      string     // 1 to 256 bytes, compared exactly
	Primary   string     // 1 to 256 bytes; used as written, never base64-decoded
	Secondary string     // the same, or empty: none
	Rights    fsm.Rights // not zero
}

// Validate returns an error that says how to correct a key and holds no secret.
func (k Key) Validate() error {
	switch {
	case k.Name == "":
		return fmt.Errorf("a key has no name")
	case len(k.Name) > keyNameBytesMax:
		return fmt.Errorf("the name of a key is longer than %d bytes", keyNameBytesMax)
	case strings.ContainsFunc(k.Name, unicode.IsControl):
		return fmt.Errorf("the name of a key holds control characters")
	case k.Primary == "":
		return fmt.Errorf("key %q has no primary secret", k.Name)
	case len(k.Primary) > keyBytesMax, len(k.Secondary) > keyBytesMax:
		return fmt.Errorf("a secret of key %q is longer than %d bytes", k.Name, keyBytesMax)
	case k.Rights == 0 || k.Rights&^(fsm.Manage|fsm.Read) != 0:
		return fmt.Errorf("key %q has no rights: give read, send, listen or manage", k.Name)
	}
	return nil
}

// HasShortSecret reports whether one of the secrets has fewer than SecretBytesMin bytes.
func (k Key) HasShortSecret() bool {
	return len(k.Primary) < SecretBytesMin || k.Secondary != "" && len(k.Secondary) < SecretBytesMin
}

// ParseRights parses "read", "send", "listen", "manage" or several of them separated by commas, in any case.
func ParseRights(text string) (fsm.Rights, error) {
	var rights fsm.Rights
	for word := range strings.SplitSeq(text, ",") {
		right, ok := ParseRight(word)
		if !ok {
			return 0, fmt.Errorf("unknown right %q: choose from read, send, listen, manage", word)
		}
		rights |= right
	}
	return WithoutIncluded(rights), nil
}

// WithoutIncluded returns rights without Read where Manage includes it, as access rules are stored.
func WithoutIncluded(rights fsm.Rights) fsm.Rights {
	if rights&fsm.Manage == fsm.Manage {
		return fsm.Manage
	}
	return rights
}

// ParseRight parses one of these words, in any case; false for other words. Manage includes all others.
func ParseRight(word string) (fsm.Rights, bool) {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "read":
		return fsm.Read, true
	case "send":
		return fsm.Send, true
	case "listen":
		return fsm.Listen, true
	case "manage":
		return fsm.Manage, true
	}
	return 0, false
}
