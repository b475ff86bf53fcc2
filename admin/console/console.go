package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Path is where the console is served; everything below it belongs to it, too.
const Path = "/console"

// Mode says whether the console is served, and whether it offers changes. The zero value is [Off].
type Mode string

// The modes, as the setting `console` names them.
const (
	Off      Mode = ""
	On       Mode = "on"
	ReadOnly Mode = "read-only" // the page offers no changes; what a key may do with other tools stays the same
)

// ParseMode returns the mode that a setting names: on, off or read-only.
func ParseMode(text string) (Mode, error) {
	switch text {
	case "off":
		return Off, nil
	case string(On), string(ReadOnly):
		return Mode(text), nil
	}
	return Off, fmt.Errorf("on, off or read-only, not %q", text)
}

// SignIn is how the page signs people in at an identity provider: by the authorization code flow with PKCE, as a public
// client. The zero value: by key alone.
type SignIn struct {
	Issuer   string // its URL, as in the claim iss
	ClientID string
	Scopes   string // that the page asks for, separated by spaces
	// Origins are those that the page may call: of the issuer and of its token endpoint, as in "https://login.example.com".
	Origins []string
}

// contentSecurityPolicy lets the page load nothing but what its own member serves, call that member and the identity provider
// alone, and no other page show it in a frame.
func contentSecurityPolicy(origins []string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src " + strings.Join(append([]string{"'self'"}, origins...), " ") + "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

//go:embed dist
var built embed.FS

// file is one built file with what is sent of it.
type file struct {
	name        string
	plain, gzip []byte
	tag         string // ETag
}

// Handler returns the handler of Path and everything below it. Paths that name no file get the page itself, which has a
// view for each. The files are packed at the first request. It is safe for concurrent use.
func Handler(mode Mode, signIn SignIn) http.Handler {
	files := sync.OnceValue(func() map[string]*file { return load(mode, signIn) })
	policy := contentSecurityPolicy(signIn.Origins)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := files()
		f := all[path.Base(r.URL.Path)]
		if f == nil || path.Dir(r.URL.Path) != Path {
			f = all[indexName]
		}
		w.Header().Set("Content-Security-Policy", policy)
		f.serve(w, r)
	})
}

// load returns the embedded files by name, with the settings in the page. It panics if they are incomplete.
func load(mode Mode, signIn SignIn) map[string]*file {
	files := make(map[string]*file)
	dist, err := fs.Sub(built, "dist")
	if err != nil {
		panic(err)
	}
	entries, err := fs.ReadDir(dist, ".")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		content, err := fs.ReadFile(dist, e.Name())
		if err != nil {
			panic(err)
		}
		if e.Name() == indexName {
			content = bytes.Replace(content, []byte(settingsMark), settings(mode, signIn), 1)
		}
		files[e.Name()] = newFile(e.Name(), content)
	}
	if files[indexName] == nil {
		panic("console: the embedded files have no " + indexName)
	}
	return files
}

const (
	indexName    = "index.html"
	settingsMark = `<meta name="peeklock-console" content="on" />` // in the page
)

// settings returns what tells the page its settings.
func settings(mode Mode, signIn SignIn) []byte {
	text := fmt.Appendf(nil, `<meta name="peeklock-console" content="%s" />`, mode)
	if signIn.ClientID != "" {
		text = fmt.Appendf(text, `<meta name="peeklock-oidc" data-issuer="%s" data-client-id="%s" data-scopes="%s" data-origins="%s" />`, html.EscapeString(signIn.Issuer),
			html.EscapeString(signIn.ClientID), html.EscapeString(signIn.Scopes), html.EscapeString(strings.Join(signIn.Origins, " ")))
	}
	return text
}

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(content) // a bytes.Buffer takes everything
	_ = z.Close()
	return &file{name: name, plain: content, gzip: packed.Bytes(), tag: hex.EncodeToString(sum[:16])}
}

// serve sends the file, or 304 to a browser that has it. Browsers ask again each time, so that a page and its script are of
// one release.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	content, tag := f.plain, f.tag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		content, tag = f.gzip, f.tag+"-gzip"
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(content))
}
