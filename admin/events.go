package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/condition"
	"github.com/peeklock/peeklock/admin/input"
	"github.com/peeklock/peeklock/amqp/connlimit"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/topology"
)

// Limits of the streams of GET /v1/events. What a stream holds in memory is one line, while it is written.
const (
	streamsMax           = 64 // of a member
	streamsPerAddressMax = 8
	streamRowsMax        = 100 // entities that a viewer names
	streamLinesMax       = 1 << 20
	streamWriteMax       = 5 * time.Second // in which a viewer must have read a line
	streamCheckEvery     = 5 * time.Second // whether the key of a viewer is still valid

	snapshotEvery = time.Second
	statusEvery   = 5 * time.Second // the members and the conditions of a snapshot
	ratesBusiest  = 10              // entities with rates in a snapshot
)

// scope is what viewers of the same snapshots may see.
type scope struct {
	namespace fsm.NamespaceID
	operator  bool
}

// streams are the streams of a member. Viewers of one scope share its snapshots, which are taken only while there are viewers. It is safe
// for concurrent use.
type streams struct {
	control Control
	running sync.WaitGroup

	mu         sync.Mutex
	closed     chan struct{} // when streams end
	isClosed   bool
	total      int
	sources    map[netip.Addr]int // streams by address; none without an address, as those of the control socket
	broadcasts map[scope]*broadcast
}

func newStreams(c Control) *streams {
	return &streams{control: c, closed: make(chan struct{}), sources: make(map[netip.Addr]int), broadcasts: make(map[scope]*broadcast)}
}

// broadcast takes the snapshots of a scope. The mutex of its streams guards it.
type broadcast struct {
	scope   scope
	viewers map[*viewer]struct{}
	begun   uint64        // snapshots whose rows were chosen
	latest  *snapshot     // nil: none yet
	changed chan struct{} // closed when there is a newer one
	stop    context.CancelFunc
}

// viewer is the reader of a stream.
type viewer struct {
	streams *streams
	of      *broadcast
	source  netip.Addr
	rows    []string // keys of names
	first   uint64   // the first snapshot that has its rows
}

// close ends all streams, and refuses further ones.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isClosed {
		s.isClosed = true
		close(s.closed)
	}
}

// open adds a viewer. Close it. Errors wrap ServerBusy.
func (s *streams) open(of scope, source netip.Addr, rows []string) (*viewer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed:
		return nil, fmt.Errorf("%w: this member is closing: ask another one", fsm.ServerBusy)
	case s.total == streamsMax:
		return nil, fmt.Errorf("%w: this member sends %d streams of events: close one, or ask another member", fsm.ServerBusy, streamsMax)
	case source.IsValid() && s.sources[source] == streamsPerAddressMax:
		return nil, fmt.Errorf("%w: %d streams of events go to your address: close one, such as a tab with the console", fsm.ServerBusy, streamsPerAddressMax)
	}
	s.total++
	if source.IsValid() {
		s.sources[source]++
	}
	f := s.broadcasts[of]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &broadcast{scope: of, viewers: make(map[*viewer]struct{}), changed: make(chan struct{}), stop: stop}
		s.broadcasts[of] = f
		s.running.Go(func() { s.take(ctx, f) })
	}
	v := &viewer{streams: s, of: f, source: source, rows: rows, first: f.begun + 1}
	f.viewers[v] = struct{}{}
	return v, nil
}

// close removes the viewer. The last one of a scope ends its snapshots.
func (v *viewer) close() {
	s := v.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.sources[v.source]--; s.sources[v.source] <= 0 {
		delete(s.sources, v.source)
	}
	if delete(v.of.viewers, v); len(v.of.viewers) == 0 {
		delete(s.broadcasts, v.of.scope)
		v.of.stop()
	}
}

// next returns the latest snapshot, nil if none has the rows of the viewer, and a channel that is closed when there is a newer one.
func (v *viewer) next() (*snapshot, <-chan struct{}) {
	v.streams.mu.Lock()
	defer v.streams.mu.Unlock()
	if latest := v.of.latest; latest != nil && latest.number >= v.first {
		return latest, v.of.changed
	}
	return nil, v.of.changed
}

// take takes snapshots of a scope until ctx ends.
func (s *streams) take(ctx context.Context, f *broadcast) {
	ticker := time.NewTicker(snapshotEvery)
	defer ticker.Stop()
	var slow slowFigures
	for {
		names, number := s.begin(f)
		now := time.Now()
		slow.refresh(ctx, s.control, f.scope, now)
		figures := s.control.Figures(ctx, topology.FiguresQuery{Namespace: f.scope.namespace, Rows: names})
		taken, err := newSnapshot(number, now, &figures, &slow)
		if err == nil {
			s.publish(f, taken)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// begin begins a snapshot, and returns the names of its rows and its number.
func (s *streams) begin(f *broadcast) (names []string, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.begun++
	for v := range f.viewers {
		names = append(names, v.rows...)
	}
	slices.Sort(names)
	return slices.Compact(names), f.begun
}

func (s *streams) publish(f *broadcast, taken *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.latest = taken
	close(f.changed)
	f.changed = make(chan struct{})
}

// slowFigures are the parts of a snapshot that change less often than once a second.
type slowFigures struct {
	rates             *api.Rates
	ofEntity          map[string]*topology.EntityRates // by kind and key of the name
	cluster           *api.EventCluster
	ratesAt, statusAt time.Time // of the last refresh
	generation        uint64    // rises when a part changes
}

// refresh asks for the parts that are due.
func (f *slowFigures) refresh(ctx context.Context, c Control, of scope, now time.Time) {
	if now.Sub(f.ratesAt) >= topology.RatesEvery*time.Second {
		f.ratesAt = now
		f.generation++
		f.rates = ratesOf(c.Rates(ctx, topology.RatesQuery{Namespace: of.namespace, Total: true}), ratesMax)
		f.ofEntity = make(map[string]*topology.EntityRates, len(f.rates.Entities))
		for i := range f.rates.Entities {
			e := &f.rates.Entities[i]
			f.ofEntity[rateKey(e.Kind, e.Name)] = e
		}
		f.rates.Entities = f.rates.Entities[:min(len(f.rates.Entities), ratesBusiest)]
	}
	if of.operator && now.Sub(f.statusAt) >= statusEvery {
		f.statusAt = now
		status, err := c.Status(ctx)
		if err != nil {
			return // the parts of before stay
		}
		f.generation++
		found := condition.Sort(condition.OfStatus(status))
		f.cluster = &api.EventCluster{Members: append([]topology.Member{}, status.Members...), Partitions: len(status.Partitions), Conditions: append([]condition.Finding{}, found...)}
	}
}

func rateKey(kind, name string) string { return kind + " " + fsm.PathKey(name) }

// snapshot is encoded once for all of its viewers, each of which gets the rows that it named. It is never changed.
type snapshot struct {
	number      uint64
	generation  uint64 // of the slow parts
	brief, full []byte // the line without its end, the rows, which are by key of the name; full has the slow parts
	rows        map[string][]byte
}

// endOfLine is the end of a line without rows.
const endOfLine = "]}"

func newSnapshot(number uint64, now time.Time, figures *topology.Figures, slow *slowFigures) (*snapshot, error) {
	s := &snapshot{number: number, generation: slow.generation, rows: make(map[string][]byte, len(figures.Rows))}
	for i := range figures.Rows {
		row := api.EventRow{EntityFigures: figures.Rows[i]}
		if r := slow.ofEntity[rateKey(row.Kind, row.Name)]; r != nil {
			row.Incoming, row.Outgoing, row.Completed, row.Consumers = r.Incoming, r.Outgoing, r.Completed, r.Consumers
		}
		encoded, err := json.Marshal(&row)
		if err != nil {
			return nil, fmt.Errorf("encode row: %w", err)
		}
		s.rows[fsm.PathKey(row.Name)] = encoded
	}
	event := api.Event{At: now.UTC().Truncate(time.Millisecond), Figures: *figures, Rows: []api.EventRow{}}
	event.Figures.Rows = nil
	event.Figures.Deepest = append([]topology.EntityFigures{}, figures.Deepest...)
	event.Figures.DeadLettered = append([]topology.EntityFigures{}, figures.DeadLettered...)
	var err error
	if s.brief, err = json.Marshal(&event); err == nil {
		event.Rates, event.Cluster = slow.rates, slow.cluster
		s.full, err = json.Marshal(&event)
	}
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	s.brief, s.full = bytes.TrimSuffix(s.brief, []byte(endOfLine)), bytes.TrimSuffix(s.full, []byte(endOfLine))
	return s, nil
}

// line appends the line for a viewer that has seen the slow parts of a generation.
func (s *snapshot) line(buffer []byte, rows []string, seen uint64) []byte {
	head := s.brief
	if s.generation != seen {
		head = s.full
	}
	buffer = append(buffer, head...)
	separator := ""
	for _, name := range rows {
		if row := s.rows[name]; row != nil {
			buffer = append(append(buffer, separator...), row...)
			separator = ","
		}
	}
	return append(buffer, endOfLine+"\n"...)
}

// rowsOf returns the keys of the names in the parameter entities, sorted.
func rowsOf(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	names := strings.Split(text, ",")
	if len(names) > streamRowsMax {
		return nil, fmt.Errorf("%w: entities has %d names, at most %d are possible", fsm.InvalidArgument, len(names), streamRowsMax)
	}
	for i := range names {
		names[i] = fsm.PathKey(names[i])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// events is GET /v1/events?entities=&max=: a line of JSON each second, until the credential or the member ends.
func (s *controlAPI) events(w http.ResponseWriter, r *http.Request) error {
	rows, err := rowsOf(r.URL.Query().Get("entities"))
	if err != nil {
		return err
	}
	most, err := input.Number(r, "max", 0, 0, streamLinesMax)
	if err != nil {
		return err
	}
	v := contextOf(r)
	var source netip.Addr
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		source = connlimit.SourceOfIP(address.Addr())
	}
	reader, err := s.streams.open(scope{v.namespace, v.operator}, source, rows)
	if err != nil {
		return err
	}
	defer reader.close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // or nginx keeps lines back
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := newLineWriter(w, r, s.streams.closed)
	if end := s.send(out, reader, v, most); end != "" {
		last, err := json.Marshal(&api.Event{At: time.Now().UTC().Truncate(time.Millisecond), End: end, Rows: []api.EventRow{}})
		if err != nil {
			return fmt.Errorf("encode end: %w", err)
		}
		_ = out.write(append(last, '\n')) // the viewer may have gone
	}
	return nil
}

// send sends lines until the viewer has gone, or has most of them (0: no limit), or must not have more; then it returns why.
func (s *controlAPI) send(out *lineWriter, reader *viewer, v *requestContext, most int) (end string) {
	var expired <-chan time.Time
	if !v.expires.IsZero() {
		timer := time.NewTimer(time.Until(v.expires))
		defer timer.Stop()
		expired = timer.C
	}
	check := time.NewTicker(streamCheckEvery)
	defer check.Stop()
	var buffer []byte
	var number, generation uint64 // of the snapshot that was sent last
	checked := time.Now()
	for lines := 0; most == 0 || lines < most; {
		// First, because a viewer that reads slowly always finds a newer snapshot.
		if end := s.endOf(v, &checked); end != "" {
			return end
		}
		latest, changed := reader.next()
		if latest != nil && latest.number != number {
			buffer = latest.line(buffer[:0], reader.rows, generation)
			number, generation = latest.number, latest.generation
			if out.write(buffer) != nil {
				return ""
			}
			lines++
			continue
		}
		select {
		case <-changed:
		case <-s.streams.closed:
		case <-expired:
		case <-check.C:
		}
	}
	return ""
}

// endOf returns why a stream must end now, "" if it goes on. checked is when the key was checked last.
func (s *controlAPI) endOf(v *requestContext, checked *time.Time) string {
	select {
	case <-s.streams.closed:
		return api.EndClosing
	default:
	}
	now := time.Now()
	if !v.expires.IsZero() && !now.Before(v.expires) {
		return api.EndExpired
	}
	if v.valid != nil && now.Sub(*checked) >= streamCheckEvery {
		if *checked = now; !v.valid() {
			return api.EndRevoked
		}
	}
	return ""
}

// lineWriter writes the lines of a stream and charges them to the owner of its request.
type lineWriter struct {
	to         http.ResponseWriter
	answer     *answerWriter // nil in tests
	connection *http.ResponseController
	stop       <-chan struct{} // closed when streams end
	ctx        context.Context //nolint:containedctx // of the request, without its time limit
}

func newLineWriter(w http.ResponseWriter, r *http.Request, stop <-chan struct{}) *lineWriter {
	l := &lineWriter{to: w, connection: http.NewResponseController(w), stop: stop, ctx: context.WithoutCancel(r.Context())}
	if l.answer, _ = w.(*answerWriter); l.answer != nil {
		l.answer.streams = true
		l.answer.slot.release() // a stream waits for its first snapshot, too
	}
	return l
}

// write sends a line. A viewer that does not read it in time has gone.
func (l *lineWriter) write(line []byte) error {
	if err := l.connection.SetWriteDeadline(time.Now().Add(streamWriteMax)); err != nil && !errors.Is(err, http.ErrNotSupported) { // a test recorder has none
		return err //nolint:wrapcheck // nobody reads it
	}
	_, err := l.to.Write(line) //nolint:gosec // JSON, as its type says
	if err == nil {
		err = l.connection.Flush()
	}
	if l.answer != nil {
		if l.answer.refused {
			return fsm.ServerBusy
		}
		l.answer.slot.work.Wait(l.ctx, l.stop, streamLineCost+l.answer.bytes/answerUnitBytes)
		l.answer.bytes = 0 // paid
	}
	return err //nolint:wrapcheck // the same
}

// streamLineCost are the units that a line costs without its bytes.
const streamLineCost = 1

// ratesOf returns rates for an answer: the total, which comes first, and the busiest entities, at most most.
func ratesOf(list []topology.EntityRates, most int) *api.Rates {
	answer := &api.Rates{EverySeconds: topology.RatesEvery}
	if len(list) > 0 && list[0].Name == "" {
		answer.Total, list = &list[0], list[1:]
	}
	busy := func(e *topology.EntityRates) float64 { return e.Incoming + e.Outgoing }
	slices.SortStableFunc(list, func(a, b topology.EntityRates) int { return cmp.Compare(busy(&b), busy(&a)) })
	answer.Entities = append([]topology.EntityRates{}, list[:min(most, len(list))]...)
	return answer
}
