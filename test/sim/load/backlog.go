package load

import (
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/history"
	"github.com/peeklock/peeklock/test/sim/judge"
)

const (
	backlogMessages = 160
	backlogBody     = 96 << 10
)

// backlogged adds a queue for the fault Backlog. Its messages are received when nothing is sent any more.
func (b *builder) backlogged() {
	s := b.stream("backlog")
	s.immediate, s.IsExact, s.isBacklog = true, true, true
	s.To = b.queue(s, s.Name, nil)
	s.From = []judge.Source{{At: s.To}}
}

// FillBacklog sends messages that nobody receives until the end.
func (l *Load) FillBacklog() {
	for _, s := range l.streams {
		if !s.isBacklog {
			continue
		}
		c := l.client("backlog")
		for range backlogMessages {
			p := c.process(l.sending)
			if p == nil {
				return
			}
			m := l.message(c, s)
			m.Payload = append(m.Payload, make([]byte, backlogBody)...)
			s.Add(history.Event{Kind: history.SendBegun, ID: m.ID, Client: c.name})
			code, heard := send(p, s.To, []fsm.Message{m})
			kind := history.SendRefused
			switch {
			case heard && code == fsm.OK:
				kind = history.SendAccepted
			case !heard || isUnknown(code):
				kind = history.SendUnknown
			}
			s.Add(history.Event{Kind: kind, ID: m.ID, Client: c.name, Note: note(p, code)})
		}
	}
}
