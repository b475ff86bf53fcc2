package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/connection"
	"github.com/peeklock/peeklock/admin/dataplane"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/admin/inspect"
	"github.com/peeklock/peeklock/admin/operation"
	"github.com/peeklock/peeklock/fsm"
)

// serveMessages serves a request about messages.
func (s *core) serveMessages(w http.ResponseWriter, r *http.Request) {
	kind, token := parseAuthorization(r.Header.Get("Authorization"))
	s.config.Messages.Serve(w, r, dataplane.Caller{
		Trusted: s.trustedCaller(r) != "", Secure: connection.IsSecure(r), Client: s.authClient(r), Kind: kind, Token: token,
		Spelling: connection.Spelling(r), SignedIn: func() { setExempt(r) },
	})
}

// messageHeadBytes are the usual bytes of a message besides its body.
const messageHeadBytes = 4 << 10

// sequenceMax is the largest sequence number that clients can name.
const sequenceMax = 1<<63 - 1

// finderAt returns the Finder of the member, and the entity of a request about messages.
func (s *core) finderAt(r *http.Request) (*inspect.Finder, inspect.Place, error) {
	if s.config.Finder == nil {
		return nil, inspect.Place{}, fmt.Errorf("%w: this server has no messages", fsm.NotImplemented)
	}
	name, err := input.MessageEntityName(r)
	at := inspect.Place{Namespace: contextOf(r).namespace, Name: name}
	if held := slotOf(r); held != nil {
		at.Account = held.account
	}
	return s.config.Finder, at, err
}

// peekParameters are those of GET /v1/messages/{queue or subscription}.
func peekParameters() []operation.Parameter {
	return append(
		selectionParameters(),
		operation.Text("subQueue", "main (also without it), deadLetter or transferDeadLetter"),
		operation.Text("sequence", "sequence numbers, at most 1000, separated by commas"),
		operation.Text("from", "the first sequence number: next of the page before"),
	)
}

// tailParameters are the parameters of the query of a tail.
func tailParameters() []operation.Parameter {
	return append(selectionParameters(), operation.Text("after", "cursor of the answer before; without it, the answer has no messages and the cursor of the end"))
}

// selectionParameters are the parameters that peeks and tails share.
func selectionParameters() []operation.Parameter {
	return []operation.Parameter{
		operation.Text("state", "active, locked, deferred or scheduled; several are separated by commas"),
		operation.Text("session", "id of the session"),
		operation.Text("where", "an SQL filter, as in a rule"),
		operation.Text("contains", "a text in the body, at most 1024 bytes"),
		operation.Text("path", "a path in a JSON body: $.customer.id, or $.customer.id=7"),
		operation.Text("reason", "of a dead letter"),
		operation.Time("before", "enqueued before it"),
		mostPeeked(), mostOfBody(),
	}
}

func mostPeeked() operation.Parameter {
	return operation.Number("max", "messages of the page", inspect.PeekMessagesNormal, 1, inspect.PeekMessagesMax)
}

func mostOfBody() operation.Parameter {
	return operation.Number("bodyBytes", "bytes of each body; bodyCut marks those that are longer", inspect.PeekBodyNormal, 1, inspect.PeekBodyMax)
}

// peekAnswerBytes bounds the answer to a peek, in which each byte of a message may take six.
func peekAnswerBytes(query url.Values) int {
	return operation.SmallAnswerBytes + 6*min(inspect.AnswerBytesMax, mostPeeked().Of(query)*(mostOfBody().Of(query)+messageHeadBytes))
}

// look is a request that looks at messages without locking them.
type look struct {
	finder        *inspect.Finder
	at            inspect.Place
	selection     api.Selection
	most, bodyMax int
}

// lookOf reads a request that looks at messages.
func (s *core) lookOf(r *http.Request) (l look, err error) {
	if l.finder, l.at, err = s.finderAt(r); err != nil {
		return l, err
	}
	if l.selection, err = selectionOf(r); err != nil {
		return l, err
	}
	if l.most, err = input.Number(r, "max", inspect.PeekMessagesNormal, 1, inspect.PeekMessagesMax); err != nil {
		return l, err
	}
	l.bodyMax, err = input.Number(r, "bodyBytes", inspect.PeekBodyNormal, 1, inspect.PeekBodyMax)
	return l, err
}

// replyLook answers with a page, for which so many messages were looked at, or with the error of the look.
func (s *core) replyLook(w http.ResponseWriter, r *http.Request, l *look, looked int, page any, err error) error {
	chargeLater(r, looked/messagesPerUnit)
	if err != nil {
		return withEntityName(l.at.Name, err)
	}
	s.writeJSON(w, r, http.StatusOK, page)
	return nil
}

// peek is GET /v1/messages/{queue or subscription}: messages of a selection, without locking them.
func (s *controlAPI) peek(w http.ResponseWriter, r *http.Request) error {
	l, err := s.lookOf(r)
	if err != nil {
		return err
	}
	from, err := sequenceParameter("from", r.URL.Query().Get("from"))
	if err != nil {
		return err
	}
	page, err := l.finder.Peek(r.Context(), l.at, &l.selection, from, l.most, l.bodyMax)
	return s.replyLook(w, r, &l, page.Looked, page, err)
}

// tail is GET /v1/tail/{queue or subscription}: the messages behind a cursor, without locking them.
func (s *controlAPI) tail(w http.ResponseWriter, r *http.Request) error {
	l, err := s.lookOf(r)
	if err != nil {
		return err
	}
	after, err := inspect.ParseCursor(r.URL.Query().Get("after"))
	if err != nil {
		return err
	}
	page, err := l.finder.Tail(r.Context(), l.at, &l.selection, after, l.most, l.bodyMax)
	return s.replyLook(w, r, &l, page.Looked, page, err)
}

// changeFields are the fields of a request that changes messages.
const changeFields = "subQueue, states, session, sequences, where, contains, path, reason, before, from, max, all and dryRun"

// change is POST /v1/delete, /v1/cancel and /v1/undefer/{queue or subscription}: it changes the messages of a selection that
// nobody has locked.
func (s *controlAPI) change(do inspect.Action) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var asked api.MessageChange
		finder, at, err := s.messagesToChange(r, &asked, changeFields)
		if err != nil {
			return err
		}
		return s.changeMessages(w, r, finder, at, do, &asked)
	}
}

// redrive is POST /v1/redrive/{queue or subscription}: it moves dead letters back to their main queue, or sends them changed
// to it or to another entity.
func (s *controlAPI) redrive(w http.ResponseWriter, r *http.Request) error {
	var asked api.RedriveRequest
	finder, at, err := s.messagesToChange(r, &asked, changeFields+", to, set, remove, body and newId")
	if err != nil {
		return err
	}
	if asked.To == "" && asked.Properties == nil && asked.Remove == nil && asked.Body == nil && !asked.NewID {
		return s.changeMessages(w, r, finder, at, inspect.Redrive, &asked.MessageChange)
	}
	if err := s.permitDestination(r, "to", forwardTokenHeader, asked.To, true); err != nil {
		return err
	}
	changed, err := finder.Move(r.Context(), at, &asked)
	chargeLater(r, changed.Looked/messagesPerUnit+changed.Count*sendAgainWork)
	contextOf(r).count = changed.Count
	if err != nil {
		return withEntityName(at.Name, err)
	}
	s.writeJSON(w, r, http.StatusOK, changed)
	return nil
}

// messagesToChange reads a request that changes messages.
func (s *controlAPI) messagesToChange(r *http.Request, asked any, possible string) (*inspect.Finder, inspect.Place, error) {
	finder, at, err := s.finderAt(r)
	if err != nil {
		return nil, inspect.Place{}, err
	}
	return finder, at, input.Decode(r, asked, possible)
}

func (s *controlAPI) changeMessages(w http.ResponseWriter, r *http.Request, finder *inspect.Finder, at inspect.Place, do inspect.Action, asked *api.MessageChange) error {
	changed, err := finder.Change(r.Context(), at, do, asked)
	chargeLater(r, changed.Looked/messagesPerUnit)
	contextOf(r).count = changed.Count
	if err != nil {
		return withEntityName(at.Name, err)
	}
	s.writeJSON(w, r, http.StatusOK, changed)
	return nil
}

// selectionOf reads a selection from the query of a request. state and sequence hold one value or several, separated by
// commas.
func selectionOf(r *http.Request) (api.Selection, error) {
	query := r.URL.Query()
	selection := api.Selection{
		SubQueue: query.Get("subQueue"), Where: query.Get("where"), Contains: query.Get("contains"),
		Path: query.Get("path"), Reason: query.Get("reason"),
	}
	if query.Has("session") {
		session := query.Get("session")
		selection.Session = &session
	}
	if text := query.Get("state"); text != "" {
		selection.States = strings.Split(text, ",")
	}
	if text := query.Get("sequence"); text != "" {
		for number := range strings.SplitSeq(text, ",") {
			n, err := sequenceParameter("sequence", number)
			if err != nil {
				return selection, err
			}
			selection.Sequences = append(selection.Sequences, n)
		}
	}
	if text := query.Get("before"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return selection, fmt.Errorf("%w: before is a time such as 2026-11-20T12:00:00Z", fsm.InvalidArgument)
		}
		selection.Before = &at
	}
	return selection, nil
}

// sequenceParameter reads a sequence number; "" is 0.
func sequenceParameter(name, text string) (fsm.SequenceNumber, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > sequenceMax {
		return 0, fmt.Errorf("%w: %s is a sequence number, not %.40q", fsm.InvalidArgument, name, text)
	}
	return fsm.SequenceNumber(n), nil
}
