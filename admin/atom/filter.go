package atom

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of the parameter $filter.
const (
	filterBytesMax   = 4096
	filterClausesMax = 32
)

// Filter selects entities of a list: clauses joined by AND. Each compares a property of an entity with a constant, or
// tests the beginning of its path. nil selects every entity. Immutable.
type Filter struct {
	clauses []filterClause
	text    string
}

// filterClause is one comparison. A clause startswith has only prefix and negated.
type filterClause struct {
	property  string // in lower case
	operator  string // in lower case: eq, ne, gt, ge, lt, le; or startswith
	text      string // of path
	number    int64  // of messageCount; of a time, in milliseconds since 1970
	isNegated bool   // startswith(...) eq false, or ne true
}

// ParseFilter parses the parameter $filter of a list; an empty one is nil. Keywords, properties and paths are
// case-insensitive. Errors wrap fsm.InvalidArgument and have the position of the fault, in characters from 1.
func ParseFilter(text string) (*Filter, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil //nolint:nilnil // no filter is a filter that selects everything
	}
	p := filterParser{text: text}
	if len(text) > filterBytesMax {
		return nil, p.fail(0, "the filter is longer than %d bytes", filterBytesMax)
	}
	f := &Filter{text: text}
	for {
		clause, err := p.clause()
		if err != nil {
			return nil, err
		}
		f.clauses = append(f.clauses, clause)
		at, word := p.next()
		switch {
		case word == "":
			return f, nil
		case !strings.EqualFold(word, "and"):
			return nil, p.fail(at, "AND or the end of the filter belongs here, not %.40q", word)
		case len(f.clauses) == filterClausesMax:
			return nil, p.fail(at, "the filter has more than %d conditions", filterClausesMax)
		}
	}
}

// NeedsCounts reports whether Matches reads the counts of an entity.
func (f *Filter) NeedsCounts() bool {
	for _, c := range f.clauses {
		if c.property == "messagecount" || c.property == "accessedat" {
			return true
		}
	}
	return false
}

// Matches reports whether the filter selects an entity. The path of a subscription is its name. The counts are read
// only where NeedsCounts reports true.
func (f *Filter) Matches(e fsm.Entity, counts fsm.Counts) bool {
	for i := range f.clauses {
		if !f.clauses[i].matches(&e, &counts) {
			return false
		}
	}
	return true
}

func (c *filterClause) matches(e *fsm.Entity, counts *fsm.Counts) bool {
	var order int
	switch c.property {
	case "path":
		_, title := entityPath(*e)
		path := strings.ToLower(title)
		if c.operator == "startswith" {
			return strings.HasPrefix(path, c.text) != c.isNegated
		}
		order = strings.Compare(path, c.text)
	case "messagecount":
		order = cmp.Compare(int64(messageCount(*counts)), c.number)
	case "createdat":
		order = cmp.Compare(int64(e.Created), c.number)
	case "updatedat":
		order = cmp.Compare(int64(e.Updated), c.number)
	case "accessedat":
		order = cmp.Compare(accessedAt(e, counts), c.number)
	}
	switch c.operator {
	case "eq":
		return order == 0
	case "ne":
		return order != 0
	case "gt":
		return order > 0
	case "ge":
		return order >= 0
	case "lt":
		return order < 0
	}
	return order <= 0
}

// accessedAt is the time that the description shows, in milliseconds since 1970.
func accessedAt(e *fsm.Entity, c *fsm.Counts) int64 {
	switch {
	case c.LastUse != 0:
		return int64(c.LastUse)
	case e.Kind == fsm.SubscriptionEntity:
		return int64(e.Created)
	}
	return time.Time{}.UnixMilli()
}

// filterParser reads a filter word by word.
type filterParser struct {
	text string
	at   int // byte offset of what is not read yet
}

func (p *filterParser) fail(at int, format string, args ...any) error {
	position := utf8.RuneCountInString(p.text[:at]) + 1
	return fmt.Errorf("%w: $filter, position %d: %s", fsm.InvalidArgument, position, fmt.Sprintf(format, args...))
}

// next reads a word, a quoted text with its quotes, or one other character, and returns its offset; "" at the end.
func (p *filterParser) next() (at int, word string) {
	for p.at < len(p.text) && strings.ContainsRune(" \t\r\n", rune(p.text[p.at])) {
		p.at++
	}
	at = p.at
	if at == len(p.text) {
		return at, ""
	}
	if p.text[at] == '\'' {
		return at, p.quoted()
	}
	for p.at < len(p.text) && isFilterWord(p.text[p.at]) {
		p.at++
	}
	if p.at == at {
		_, size := utf8.DecodeRuneInString(p.text[at:])
		p.at += size
	}
	return at, p.text[at:p.at]
}

// quoted reads a text in single quotes; two quotes in it are one. Of a text that does not end it returns only the first
// quote.
func (p *filterParser) quoted() string {
	start := p.at
	for p.at++; p.at < len(p.text); p.at++ {
		if p.text[p.at] != '\'' {
			continue
		}
		if p.at+1 < len(p.text) && p.text[p.at+1] == '\'' {
			p.at++
			continue
		}
		p.at++
		return p.text[start:p.at]
	}
	return p.text[start : start+1]
}

// isFilterWord reports whether a character belongs to a word: a name, a number, or a time without quotes.
func isFilterWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_-:.+", c) >= 0
}

// clause reads one condition.
func (p *filterParser) clause() (filterClause, error) {
	at, word := p.next()
	c := filterClause{property: strings.ToLower(word)}
	switch c.property {
	case "startswith":
		return p.startsWith()
	case "path", "messagecount", "createdat", "updatedat", "accessedat":
	default:
		return c, p.fail(at, "startswith, path, messageCount, createdAt, updatedAt or accessedAt belongs here, not %.40q", word)
	}
	at, word = p.next()
	c.operator = strings.ToLower(word)
	switch c.operator {
	case "eq", "ne", "gt", "ge", "lt", "le":
	default:
		return c, p.fail(at, "eq, ne, gt, ge, lt or le belongs here, not %.40q", word)
	}
	at, word = p.next()
	var err error
	switch c.property {
	case "path":
		c.text, err = p.path(at, word)
	case "messagecount":
		if c.number, err = strconv.ParseInt(word, 10, 64); err != nil {
			err = p.fail(at, "messageCount is compared with a number, not %.40q", word)
		}
	default:
		c.number, err = p.time(at, word)
	}
	return c, err
}

// startsWith reads what follows the word startswith: (path, 'prefix') eq true.
func (p *filterParser) startsWith() (filterClause, error) {
	c := filterClause{property: "path", operator: "startswith"}
	for _, want := range []string{"(", "path", ","} {
		if at, word := p.next(); !strings.EqualFold(word, want) {
			return c, p.fail(at, "%s belongs here, not %.40q: write startswith(path, 'a') eq true", want, word)
		}
	}
	at, word := p.next()
	var err error
	if c.text, err = p.path(at, word); err != nil {
		return c, err
	}
	if at, word = p.next(); word != ")" {
		return c, p.fail(at, ") belongs here, not %.40q", word)
	}
	at, word = p.next()
	isEqual := strings.EqualFold(word, "eq")
	if !isEqual && !strings.EqualFold(word, "ne") {
		return c, p.fail(at, "eq or ne belongs here, not %.40q", word)
	}
	at, word = p.next()
	isTrue := strings.EqualFold(word, "true")
	if !isTrue && !strings.EqualFold(word, "false") {
		return c, p.fail(at, "true or false belongs here, not %.40q", word)
	}
	c.isNegated = isEqual != isTrue
	return c, nil
}

// path returns a quoted path or prefix in lower case.
func (p *filterParser) path(at int, word string) (string, error) {
	text, ok := unquote(word)
	if !ok {
		return "", p.fail(at, "path is compared with a text in single quotes, not %.40q", word)
	}
	return strings.ToLower(text), nil
}

// time returns a time in milliseconds since 1970. It may be quoted, and without a zone it is UTC. OData's form
// datetime'...' is accepted, too.
func (p *filterParser) time(at int, word string) (int64, error) {
	text := word
	if strings.EqualFold(word, "datetime") || strings.EqualFold(word, "datetimeoffset") {
		_, text = p.next()
	}
	if plain, ok := unquote(text); ok {
		text = plain
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02", "1/2/2006 15:04:05", "1/2/2006 3:04:05 PM", "1/2/2006"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, p.fail(at, "a time belongs here, such as '2026-11-20T12:00:00Z', not %.60q", word)
}

// unquote returns the content of a text in single quotes.
func unquote(word string) (string, bool) {
	if len(word) < 2 || word[0] != '\'' || word[len(word)-1] != '\'' {
		return "", false
	}
	return strings.ReplaceAll(word[1:len(word)-1], "''", "'"), true
}
