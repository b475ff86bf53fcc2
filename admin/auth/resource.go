package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm"
)

// resourceBytesMax is the longest resource or audience that is read. A rule of the longest name, with
// every character escaped, stays below.
const resourceBytesMax = 4096

// Resource is a host with a path that a client names: in the name of a put-token, or signed in the sr of a shared access
// signature. The forms that the official clients send are in TestResourcesOfClients.
type Resource struct {
	Host string // in lower case, without port
	Path string // as fsm.PathKey, without slashes at its ends; "" is the whole namespace
}

// ParseAudience reads the name of a put-token: a URI with a scheme, a host and the path of an entity,
// and nothing else. A scheme that is not known means what sb means, as in the service. Errors say what to correct and wrap fsm.InvalidArgument.
func ParseAudience(text string) (Resource, error) {
	known := text
	if hasOtherScheme(text) {
		_, rest, _ := strings.Cut(text, "://")
		known = "sb://" + rest
	}
	r, err := parseResource(known, false)
	if err != nil {
		return Resource{}, fmt.Errorf("%w: the audience %.100q %w: write it like sb://host/entity", fsm.InvalidArgument, text, err)
	}
	return r, nil
}

// parseSigned reads the sr of a shared access signature. Clients also sign a host without a scheme, and
// whole URLs of requests, with their queries.
func parseSigned(text string) (Resource, error) {
	r, err := parseResource(text, true)
	if err != nil {
		return Resource{}, fmt.Errorf("%w: the resource %.100q of the token %w: sign one like sb://host/entity", fsm.InvalidArgument, text, err)
	}
	return r, nil
}

// ParseDestination reads the absolute URI of a queue or topic, as administration clients write where
// messages are forwarded to. The name keeps its case.
func ParseDestination(text string) (name string, err error) {
	_, name, err = splitResource(text, false)
	if err == nil && name == "" {
		err = errors.New("names no queue or topic")
	}
	if err != nil {
		return "", fmt.Errorf("%w: the address %.100q %w: write it like sb://host/entity", fsm.InvalidArgument, text, err)
	}
	return name, nil
}

func parseResource(text string, signed bool) (Resource, error) {
	host, name, err := splitResource(text, signed)
	return Resource{Host: host, Path: fsm.PathKey(name)}, err
}

// splitResource is the only parser of such texts. It cuts off each part from the left, where RFC 3986
// ends it, so that no other reading finds another host or path in the text.
func splitResource(text string, signed bool) (host, name string, err error) {
	if len(text) > resourceBytesMax {
		return "", "", fmt.Errorf("is longer than %d bytes", resourceBytesMax)
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '\\' || c == '#' }); i >= 0 {
		return "", "", fmt.Errorf("has a character that must not be there: %q", text[i:i+1])
	}
	scheme, rest, err := cutScheme(text)
	switch {
	case err != nil:
		return "", "", err
	case scheme == "" && !signed:
		return "", "", errors.New("has no scheme")
	}
	if before, _, found := strings.Cut(rest, "?"); found {
		// Administration clients sign the URL that they ask for.
		if !signed || scheme != "http" && scheme != "https" || !strings.Contains(before, "/") {
			return "", "", errors.New("has a query, which does not belong there")
		}
		rest = before
	}
	authority, escaped, _ := strings.Cut(rest, "/")
	if scheme == "" && escaped != "" {
		return "", "", errors.New("has a path and no scheme: it may be a host with a path, or a name with a slash")
	}
	if host, err = cutPort(authority); err != nil {
		return "", "", err
	}
	name, err = url.PathUnescape(strings.TrimSuffix(escaped, "/"))
	if err != nil {
		return "", "", errors.New("has an invalid percent-encoding")
	}
	if !signed && strings.ContainsAny(name, `?#@\`) {
		return "", "", errors.New("has a character in its path that no name has")
	}
	return host, name, checkPath(name)
}

// cutScheme separates the scheme from the rest; "" when there is none.
func cutScheme(text string) (scheme, rest string, err error) {
	before, after, found := strings.Cut(text, "://")
	if !found {
		return "", text, nil
	}
	if scheme = strings.ToLower(before); isKnownScheme(scheme) {
		return scheme, after, nil
	}
	return "", "", errors.New("has a :// after an unknown scheme")
}

func isKnownScheme(scheme string) bool {
	switch scheme {
	case "sb", "amqp", "amqps", "http", "https", "ws", "wss":
		return true
	}
	return false
}

// hasOtherScheme reports whether a text begins with a scheme (RFC 3986, 3.1) that is not one of the known ones.
func hasOtherScheme(text string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(text), "://")
	if !found || scheme == "" || isKnownScheme(scheme) || scheme[0] < 'a' || scheme[0] > 'z' {
		return false
	}
	return !strings.ContainsFunc(scheme, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.'
	})
}

// cutPort returns the host of an authority, without port, in lower case.
func cutPort(authority string) (string, error) {
	host, port, found := strings.Cut(authority, ":")
	if strings.HasPrefix(authority, "[") {
		host, port, found = strings.Cut(authority, "]")
		host += "]"
		address, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if !found || err != nil || !address.Is6() {
			return "", errors.New("has a host in brackets that is not an IPv6 address")
		}
		found = port != ""
		if found && port[0] != ':' {
			return "", errors.New("has something between its host and its port")
		}
		port = strings.TrimPrefix(port, ":")
	} else if !isHost(host) {
		return "", errors.New("has no host, or one with characters that no host has")
	}
	if _, err := strconv.ParseUint(port, 10, 16); found && err != nil {
		return "", errors.New("has a port that is not a number up to 65535")
	}
	return strings.ToLower(host), nil
}

// isHost reports whether a text consists of the characters of host names and IPv4 addresses.
func isHost(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	})
}

// TargetPath is the path of a request, decoded, as the Path of a Target. Errors wrap
// fsm.InvalidArgument.
func TargetPath(decoded string) (string, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(decoded, "/"), "/")
	if err := checkPath(name); err != nil {
		return "", fmt.Errorf("%w: the path %.100q %w", fsm.InvalidArgument, decoded, err)
	}
	return fsm.PathKey(name), nil
}

// checkPath refuses decoded paths that another component may normalize to a different path.
func checkPath(name string) error {
	switch {
	case name == "":
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("has a control character in its path, or one that is not UTF-8")
	case path.Clean("/"+name) != "/"+name:
		return errors.New("has an empty part in its path, or . or .. as one")
	}
	return nil
}

// Target is a path of a namespace for which a request needs rights.
type Target struct {
	Path string // as that of a Resource
	// Entity is the path of the queue or topic whose own access rules are tried beside those of the
	// namespace; "" for none. It is not derived from Path: the URL of a request may look like the
	// name of an entity.
	Entity string
	// Written is another text that may be signed for this target, whatever it means as a resource:
	// the Go administration client signs the name of a destination as the application wrote it.
	Written string
}

// TargetOf returns the target of an entity's path, with the rules of that entity.
func TargetOf(path string) Target { return Target{Path: path, Entity: fsm.EntityPath(path)} }

// covers reports whether the path is the signed one or below it, by whole segments: "orders"
// does not cover "orders2".
func (r Resource) covers(path string) bool {
	rest, found := strings.CutPrefix(path, r.Path)
	return r.Path == "" || found && (rest == "" || rest[0] == '/')
}

// selectTarget returns the first target that the signed resource covers, and that resource. When it
// covers none, found is false and target is the first.
func (s sasToken) selectTarget(targets []Target) (target Target, at Resource, found bool, err error) {
	at, err = parseSigned(s.resource)
	for _, target := range targets {
		if target.Written != "" && strings.EqualFold(s.resource, target.Written) {
			return target, Resource{}, true, nil
		}
		if err == nil && at.covers(target.Path) {
			return target, at, true, nil
		}
	}
	return targets[0], at, false, err
}

// ClaimsTarget reports whether a token claims to be for a target; a JWT is for all. It does not verify
// the token: callers use it to skip a verification that would count as a failed login.
func ClaimsTarget(kind, token string, target Target) bool {
	if kind == KindJWT {
		return token != ""
	}
	s, err := parseSAS(token)
	if err != nil {
		return false
	}
	_, _, found, err := s.selectTarget([]Target{target})
	return found && err == nil
}
