package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// sasPrefix is the word that a SAS begins with, followed by one space.
const sasPrefix = "SharedAccessSignature"

// tokenBytesMax bounds a token before it is parsed. A SAS for the longest entity name
// stays under 2 KiB.
const tokenBytesMax = 8 * 1024

// jwtBytesMax bounds a JWT likewise: those with many groups in them are large.
const jwtBytesMax = 32 * 1024

// expirySecondsMax is the last second of the year 9999: later dates cannot be formatted.
const expirySecondsMax = 253402300799

// sasToken is a parsed token that is not yet verified.
type sasToken struct {
	rawResource string // sr as sent: the text that was signed
	resource    string // sr decoded
	rawExpiry   string // se as sent: the text that was signed
	expiry      time.Time
	keyName     string // skn decoded
	signature   string // sig decoded: base64 of the HMAC
}

// parseSAS parses a token. The parameters may have any order (the JavaScript administration client sends sig, se, skn, sr);
// each is given exactly once. Unknown ones are ignored, as in the cloud.
func parseSAS(token string) (sasToken, error) {
	if len(token) > tokenBytesMax {
		return sasToken{}, fmt.Errorf("the token is longer than %d bytes", tokenBytesMax)
	}
	word, rest, found := strings.Cut(strings.TrimSpace(token), " ")
	if !found || !strings.EqualFold(word, sasPrefix) {
		return sasToken{}, errors.New("the token does not begin with SharedAccessSignature")
	}
	var s sasToken
	var skn, sig string
	for pair := range strings.SplitSeq(strings.TrimSpace(rest), "&") {
		name, value, _ := strings.Cut(pair, "=")
		var field *string
		switch name {
		case "sr":
			field = &s.rawResource
		case "se":
			field = &s.rawExpiry
		case "skn":
			field = &skn
		case "sig":
			field = &sig
		default:
			continue
		}
		if value == "" {
			return sasToken{}, fmt.Errorf("the token's %s is empty", name)
		}
		if *field != "" {
			return sasToken{}, fmt.Errorf("the token has %s twice", name)
		}
		*field = value
	}
	for _, f := range []struct{ name, value string }{{"sr", s.rawResource}, {"se", s.rawExpiry}, {"skn", skn}, {"sig", sig}} {
		if f.value == "" {
			return sasToken{}, fmt.Errorf("the token has no %s", f.name)
		}
	}
	return s.decode(skn, sig)
}

// decode decodes the texts of the token.
func (s sasToken) decode(skn, sig string) (sasToken, error) {
	seconds, err := strconv.ParseInt(s.rawExpiry, 10, 64)
	if err != nil || seconds < 0 || seconds > expirySecondsMax {
		return sasToken{}, errors.New("the token's se is not a time in seconds since 1970")
	}
	s.expiry = time.Unix(seconds, 0)
	if s.resource, err = url.QueryUnescape(s.rawResource); err != nil {
		return sasToken{}, errors.New("the token's sr is not URL-encoded")
	}
	if s.keyName, err = url.QueryUnescape(skn); err != nil {
		return sasToken{}, errors.New("the token's skn is not URL-encoded")
	}
	// Not QueryUnescape: base64 has "+" and some hand-written clients leave it as it is.
	if s.signature, err = url.PathUnescape(sig); err != nil {
		return sasToken{}, errors.New("the token's sig is not URL-encoded")
	}
	return s, nil
}

// isBare reports whether the signed resource has no scheme.
func (s sasToken) isBare() bool { return !strings.Contains(s.resource, "://") }

// signature is base64 of the HMAC-SHA256 over the resource as sent, one line feed and
// the expiry as sent. The key is the text itself, though it looks like base64.
func signature(secret, resource, expires string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(resource))
	mac.Write([]byte{'\n'})
	mac.Write([]byte(expires))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Sign returns the token that a client sends. It is valid for the resource, a URL, and everything below its path, until
// expiry, in whole seconds.
func Sign(resource, keyName, secret string, expiry time.Time) string {
	sr := url.QueryEscape(resource)
	se := strconv.FormatInt(expiry.Unix(), 10)
	sig := url.QueryEscape(signature(secret, sr, se))
	return sasPrefix + " sr=" + sr + "&sig=" + sig + "&se=" + se + "&skn=" + url.QueryEscape(keyName)
}
