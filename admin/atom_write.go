package admin

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// The namespaces of what is written (AdministrationClient of each SDK looks for these).
const (
	feedXMLNS     = "http://www.w3.org/2005/Atom"
	serviceXMLNS  = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	countXMLNS    = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
	instanceXMLNS = "http://www.w3.org/2001/XMLSchema-instance"
	schemaXMLNS   = "http://www.w3.org/2001/XMLSchema"
)

// timeUnset is the zero of .NET, which clients take for "not known".
const timeUnset = "0001-01-01T00:00:00"

// xmlWriter writes a document element by element. It is not encoding/xml because some clients
// look for prefixes as the service spells them ("i:type", "d6p1:string"), not for namespaces.
type xmlWriter struct{ bytes.Buffer }

func newXML() *xmlWriter {
	x := &xmlWriter{}
	x.WriteString(`<?xml version="1.0" encoding="utf-8"?>`)
	return x
}

// open begins an element; attrs are names and values in turn. Names are constants.
func (x *xmlWriter) open(name string, attrs ...string) {
	x.WriteString("<" + name)
	for i := 0; i+1 < len(attrs); i += 2 {
		x.WriteString(" " + attrs[i] + `="`)
		x.escape(attrs[i+1])
		x.WriteByte('"')
	}
	x.WriteByte('>')
}

func (x *xmlWriter) end(name string) { x.WriteString("</" + name + ">") }

// leaf writes an element that holds text.
func (x *xmlWriter) leaf(name, text string, attrs ...string) {
	x.open(name, attrs...)
	start := x.Len()
	x.escape(text)
	// Quotes need no escape outside of attributes, and people read texts of errors raw.
	plain := bytes.ReplaceAll(bytes.ReplaceAll(x.Bytes()[start:], []byte("&#39;"), []byte("'")), []byte("&#34;"), []byte(`"`))
	x.Truncate(start)
	x.Write(plain)
	x.end(name)
}

// escape writes a text. What XML cannot hold becomes U+FFFD. A buffer's writes do not fail.
func (x *xmlWriter) escape(text string) { _ = xml.EscapeText(&x.Buffer, []byte(text)) }

func (x *xmlWriter) bool(name string, b bool) { x.leaf(name, strconv.FormatBool(b)) }

func (x *xmlWriter) number(name string, n uint64) { x.leaf(name, strconv.FormatUint(n, 10)) }

func (x *xmlWriter) duration(name string, m fsm.Millis) { x.leaf(name, entity.FromMillis(m).ISO()) }

// optional leaves a text out that is empty, as the service does.
func (x *xmlWriter) optional(name, text string) {
	if text != "" {
		x.leaf(name, text)
	}
}

// time writes a time; zero is unset.
func (x *xmlWriter) time(name string, at fsm.Instant) {
	text := timeUnset
	if at != 0 {
		text = toTime(at).Format(time.RFC3339Nano)
	}
	x.leaf(name, text)
}

// atomItem is what an entry says around its description.
type atomItem struct {
	path      string // from the root, without a slash before it
	title     string
	author    string // the namespace
	published fsm.Instant
	updated   fsm.Instant
}

// entry writes one ATOM entry around content. The clients of JavaScript take the names out of
// id, so that is always the path as spelled at creation, with "Subscriptions" and "Rules".
func (x *xmlWriter) entry(r *http.Request, item atomItem, top bool, content func()) {
	link := linkTo(r, item.path, nil)
	if top {
		x.open("entry", "xmlns", feedXMLNS)
	} else {
		x.open("entry")
	}
	x.leaf("id", link)
	x.leaf("title", item.title, "type", "text")
	x.time("published", item.published)
	x.time("updated", item.updated)
	x.open("author")
	x.leaf("name", item.author)
	x.end("author")
	x.leaf("link", "", "rel", "self", "href", link)
	x.open("content", "type", "application/xml")
	content()
	x.end("content")
	x.end("entry")
}

// feed begins a list. There are two links when more follows and one else: Python and
// JavaScript count them, and the second is the next page.
func (x *xmlWriter) feed(r *http.Request, path, title string, page atomPage, more bool) {
	self := linkTo(r, path, nil)
	x.open("feed", "xmlns", feedXMLNS)
	x.leaf("title", title, "type", "text")
	x.leaf("id", self)
	x.leaf("updated", time.Now().UTC().Format(time.RFC3339))
	x.leaf("link", "", "rel", "self", "href", self)
	if more {
		x.leaf("link", "", "rel", "next", "href", linkTo(r, path, &atomPage{skip: page.skip + page.top, top: page.top}))
	}
}

// linkTo is the absolute URL of a path at this listener, as the client knows it; with a page
// it carries everything that Python wants to find there.
func linkTo(r *http.Request, path string, page *atomPage) string {
	link := url.URL{Scheme: "http", Host: r.Host, Path: "/" + path}
	if isSecure(r) {
		link.Scheme = "https"
	}
	version := r.URL.Query().Get(versionParameter)
	if version == "" || len(version) > versionBytesMax {
		version = versionNormal
	}
	query := url.Values{versionParameter: {version}}
	if page != nil {
		query.Set("$skip", strconv.Itoa(page.skip))
		query.Set("$top", strconv.Itoa(page.top))
	}
	link.RawQuery = query.Encode()
	return link.String()
}

// entityPath is the path of an entity in links.
func entityPath(e fsm.Entity) (path, title string) {
	if _, name, ok := fsm.SplitSubscriptionPath(e.Name); ok && e.Kind == fsm.SubscriptionEntity {
		return e.Name, name
	}
	return strings.Trim(e.Name, "/"), e.Name
}
