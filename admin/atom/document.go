package atom

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// XML namespaces that the administration clients of all SDKs expect.
const (
	feedXMLNS     = "http://www.w3.org/2005/Atom"
	serviceXMLNS  = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
	countXMLNS    = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
	instanceXMLNS = "http://www.w3.org/2001/XMLSchema-instance"
	schemaXMLNS   = "http://www.w3.org/2001/XMLSchema"
	serialXMLNS   = "http://schemas.microsoft.com/2003/10/Serialization/"
)

// Media types of documents.
const (
	EntryType = "application/atom+xml;type=entry;charset=utf-8"
	FeedType  = "application/atom+xml;type=feed;charset=utf-8"
	ErrorType = "application/xml;charset=utf-8"
)

// VersionParameter is the parameter of a URL by which a client names the version of the API.
const VersionParameter = "api-version"

const (
	versionDefault  = "2021-05" // in links when the client names none
	versionBytesMax = 16        // longer ones are not written back
)

// standardMessageBytes is the largest message of a namespace that the service calls Standard.
const standardMessageBytes = 256 * 1024

// timeUnset is the zero time of .NET, which clients take for "not known".
const timeUnset = "0001-01-01T00:00:00"

// Origin is the address by which a client reaches the service. Links in documents begin with it.
type Origin struct {
	Secure  bool   // the client uses https
	Host    string // with the port, as the client writes it
	Version string // of the API, as the client names it; else "": the newest
	// Standard says that the namespace is shown as one of the service's Standard tier, in which the size of a
	// partitioned entity is that of 16 partitions.
	Standard bool
}

// partitionsShown is the number of partitions of a partitioned entity in a Standard namespace of the service.
const partitionsShown = 16

// IsStandard reports whether a namespace is shown as one of the Standard tier.
func IsStandard(s fsm.NamespaceSettings) bool { return s.MessageBytesMax <= standardMessageBytes }

// megabytesShown returns the size of an entity as clients see it. That of a partitioned one is given for each partition.
func (o Origin) megabytesShown(s *fsm.EntitySettings) uint64 {
	megabytes := s.MaxBytes >> 20
	if o.Standard && s.EnablePartitioning {
		megabytes *= partitionsShown
	}
	return megabytes
}

// namespace is the name of the namespace in documents: the first label of the host.
func (o Origin) namespace() string {
	host := o.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return host
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}

// isBefore reports whether the client asks for an older version of the API than the given one. Versions are dates; ""
// stands for the default one.
func (o Origin) isBefore(version string) bool {
	asked := o.Version
	if asked == "" {
		asked = versionDefault
	}
	return asked < version
}

// Document is written element by element. It does not use encoding/xml because some clients look for the prefixes
// that the service writes ("i:type", "d6p1:string"), not for namespaces. It is for one goroutine.
type Document struct {
	bytes.Buffer
	origin Origin
}

func newDocument(o Origin) *Document {
	x := &Document{origin: o}
	x.WriteString(`<?xml version="1.0" encoding="utf-8"?>`)
	return x
}

// NamespaceDocument is an entry with a namespace, which has the name by which the client reaches it. The service sells two sizes of messages; a namespace without a
// limit is shown as one with the smaller size.
func NamespaceDocument(o Origin, n fsm.Namespace) *Document {
	x := newDocument(o)
	name := o.namespace()
	x.entry(item{path: namespaceWord, title: name, author: name, published: n.Created, updated: n.Updated}, true, func() {
		x.open("NamespaceInfo", "xmlns", serviceXMLNS, "xmlns:i", instanceXMLNS)
		x.time("CreatedTime", n.Created)
		if IsStandard(n.Settings) {
			x.leaf("MessagingSKU", "Standard")
		} else {
			x.leaf("MessagingSKU", "Premium")
			x.number("MessagingUnits", 1)
		}
		x.time("ModifiedTime", n.Updated)
		x.leaf("Name", name)
		x.leaf("NamespaceType", "Messaging")
		x.end("NamespaceInfo")
	})
	return x
}

// NewTrackingID returns a random id that clients and the log use to identify the same error.
func NewTrackingID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(id[:])
}

// ErrorDetail returns the detail of an [ErrorDocument] in the form of the service: a text, and the id of the error.
func ErrorDetail(text, trackingID string) string {
	return strings.TrimSuffix(text, ".") + ". TrackingId:" + trackingID + ", SystemTracker:peeklock, Timestamp:" + time.Now().UTC().Format("2006-01-02T15:04:05")
}

// ErrorDocument is the Error element of the service. It is never empty: .NET before 7.18.4 and JavaScript fail on an
// empty body.
func ErrorDocument(status int, detail string) *Document {
	x := &Document{}
	x.open("Error")
	x.leaf("Code", strconv.Itoa(status))
	x.leaf("Detail", detail)
	x.end("Error")
	return x
}

// ListedServicesDocument is the empty feed by which the service answers a GET of its root, and of a queue or topic that
// does not exist. Clients recognize it by having no entry.
func ListedServicesDocument() *Document {
	x := newDocument(Origin{})
	x.open("feed", "xmlns", feedXMLNS)
	x.leaf("title", "Publicly Listed Services", "type", "text")
	x.leaf("subtitle", "This is the list of publicly-listed services currently available.", "type", "text")
	x.leaf("id", "uuid:00000000-0000-0000-0000-000000000000;id=1")
	x.leaf("updated", time.Now().UTC().Format(time.RFC3339))
	x.leaf("generator", "Service Bus 1.1")
	x.Close()
	return x
}

// Page is a part of a list: Top entries after the first Skip ones of those that Filter selects.
type Page struct {
	Skip, Top int
	Filter    *Filter
}

// NewFeed begins a list at a path; AddEntity and AddRule add entries, Close ends it. There are two links when more
// follows, and otherwise one: Python and JavaScript count them, and the second is the next page.
func NewFeed(o Origin, path, title string, page Page, more bool) *Document {
	x := newDocument(o)
	self := o.link(path, nil)
	x.open("feed", "xmlns", feedXMLNS)
	x.leaf("title", title, "type", "text")
	x.leaf("id", self)
	x.leaf("updated", time.Now().UTC().Format(time.RFC3339))
	x.leaf("link", "", "rel", "self", "href", self)
	if more {
		x.leaf("link", "", "rel", "next", "href", o.link(path, &Page{Skip: page.Skip + page.Top, Top: page.Top, Filter: page.Filter}))
	}
	return x
}

// Close ends a feed.
func (x *Document) Close() { x.end("feed") }

// open begins an element; attrs are names and values alternately. Names are constants.
func (x *Document) open(name string, attrs ...string) {
	x.WriteString("<" + name)
	for i := 0; i+1 < len(attrs); i += 2 {
		x.WriteString(" " + attrs[i] + `="`)
		x.escape(attrs[i+1])
		x.WriteByte('"')
	}
	x.WriteByte('>')
}

func (x *Document) end(name string) { x.WriteString("</" + name + ">") }

// leaf writes an element with a text.
func (x *Document) leaf(name, text string, attrs ...string) {
	x.open(name, attrs...)
	start := x.Len()
	x.escape(text)
	// Quotes need no escape outside of attributes, and people read error texts unparsed.
	plain := bytes.ReplaceAll(bytes.ReplaceAll(x.Bytes()[start:], []byte("&#39;"), []byte("'")), []byte("&#34;"), []byte(`"`))
	x.Truncate(start)
	x.Write(plain)
	x.end(name)
}

// escape writes a text. Characters that XML does not allow become U+FFFD. Writes to a buffer do not fail.
func (x *Document) escape(text string) { _ = xml.EscapeText(&x.Buffer, []byte(text)) }

func (x *Document) number(name string, n uint64) { x.leaf(name, strconv.FormatUint(n, 10)) }

// optional omits an empty text, as the service does.
func (x *Document) optional(name, text string) {
	if text != "" {
		x.leaf(name, text)
	}
}

// time writes a time; zero is unset.
func (x *Document) time(name string, at fsm.Instant) {
	text := timeUnset
	if at != 0 {
		text = instant(at).Format(time.RFC3339Nano)
	}
	x.leaf(name, text)
}

// item is the envelope of an entry around its description.
type item struct {
	path      string // from the root, without a leading slash
	title     string
	author    string // the namespace
	published fsm.Instant
	updated   fsm.Instant
}

// entry writes one ATOM entry around content. JavaScript takes the names out of id, so id is always the path as
// spelled at creation, with "Subscriptions" and "Rules".
func (x *Document) entry(i item, top bool, content func()) {
	link := x.origin.link(i.path, nil)
	if top {
		x.open("entry", "xmlns", feedXMLNS)
	} else {
		x.open("entry")
	}
	x.leaf("id", link)
	x.leaf("title", i.title, "type", "text")
	x.time("published", i.published)
	x.time("updated", i.updated)
	x.open("author")
	x.leaf("name", i.author)
	x.end("author")
	x.leaf("link", "", "rel", "self", "href", link)
	x.open("content", "type", "application/xml")
	content()
	x.end("content")
	x.end("entry")
}

// link is the absolute URL of a path, as the client writes it; with a page it has everything that Python expects
// there.
func (o Origin) link(path string, page *Page) string {
	link := url.URL{Scheme: "http", Host: o.Host, Path: "/" + path}
	if o.Secure {
		link.Scheme = "https"
	}
	version := o.Version
	if version == "" || len(version) > versionBytesMax {
		version = versionDefault
	}
	query := url.Values{VersionParameter: {version}}
	if page != nil {
		query.Set("$skip", strconv.Itoa(page.Skip))
		query.Set("$top", strconv.Itoa(page.Top))
		if page.Filter != nil {
			query.Set("$filter", page.Filter.text)
		}
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

// instant returns a time of the state machine in UTC.
func instant(t fsm.Instant) time.Time { return time.UnixMilli(int64(t)).UTC() }
