package simnet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/peeklock/peeklock/cluster/gossip"
)

// The behaviour of a network that is not disturbed.
const (
	latencyMin    = 100 * time.Microsecond
	latencyMax    = time.Millisecond
	slowOneIn     = 500                    // messages that take up to slowMax
	slowMax       = 20 * time.Millisecond  //
	resendMin     = 200 * time.Millisecond // after a link is healed until its bytes arrive
	resendMax     = time.Second            //
	synEvery      = time.Second            // between two attempts to open a stream over a cut link
	damageOneIn   = 20                     // writes to a stream that is damaged
	unsentBytes   = 8 << 20                // in one direction of a stream before Write waits
	packetsQueued = 1024                   // of one host; further ones are lost
	bytesOfPace   = 1 << 20                // that take as long as the pace of a link says
)

// Link is one direction between two hosts.
type Link struct{ From, To int }

// Network connects hosts. All methods may be called concurrently, from one synctest bubble.
type Network struct {
	mu    sync.Mutex
	rand  *rand.Rand
	hosts map[int]*Host // the running process of each host; absent: it refuses, or it is off
	off   map[int]bool
	cut   map[Link]bool
	extra map[Link]time.Duration // added to latencies: up to this
	pace  map[Link]time.Duration // that a mebibyte takes in each stream; absent: none
	harm  map[Link]bool          // whose streams of the kind that mayHarm accepts are damaged
	pipes map[*pipe]uint64       // of open streams, in the order of their numbers
	piped uint64                 // pipes so far
	stats Stats
	// observe is called with everything that is sent, under the mutex.
	observe func(over Link, data []byte)
	mayHarm func(first []byte) bool // see DamageStreams
}

// Stats counts what a network carried and lost.
type Stats struct{ Streams, Bytes, Packets, PacketsLost, Damaged uint64 }

// Host is the access of one process to the network. When the process has ended, every call fails.
type Host struct {
	network *Network
	number  int

	// Guarded by the mutex of the network.
	ended     bool
	listeners map[int]*listener
	nextPort  int
	conns     []*conn
	packets   *packets
}

type listener struct {
	host     *Host
	address  net.TCPAddr
	accepted chan *conn
	closed   chan struct{} // closed under the mutex of the network
}

// packets is the gossip of one host: packets and streams at one port.
type packets struct {
	host     *Host
	port     int
	listener net.Listener
	received chan *gossip.Packet
	streams  chan net.Conn
	closed   chan struct{} // closed under the mutex of the network
	isClosed bool
}

// segment is what one Write sent.
type segment struct {
	data []byte
	at   time.Time // of its arrival; zero while a cut link holds it
	end  error     // io.EOF or ECONNRESET: nothing follows
}

// pipe is one direction of a stream. Its fields are guarded by the mutex of the network.
type pipe struct {
	network  *Network
	link     Link
	segments []segment
	bytes    int       // of segments
	last     time.Time // arrival of the newest segment
	err      error     // of reading, once it has arrived
	closed   bool      // the reader has closed its end
	vanished bool      // the reader has lost power
	ended    int       // ends of the stream that have been closed
	opposite *pipe     // the other direction
	begun    bool      // something was sent in one of the directions
	mayHarm  bool      // SetDamages may damage it

	reader, writer waiter
}

// New returns a network whose latencies come from the seed.
func New(seed uint64) *Network {
	return &Network{
		observe: func(Link, []byte) {}, mayHarm: func([]byte) bool { return false }, rand: rand.New(rand.NewPCG(seed, 0x6e6574)), hosts: make(map[int]*Host), off: make(map[int]bool),
		cut: make(map[Link]bool), extra: make(map[Link]time.Duration), pipes: make(map[*pipe]uint64),
	}
}

// Observe makes the network call a function with everything that is sent, one call at a time.
func (n *Network) Observe(observe func(over Link, data []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observe = observe
}

// Stats returns the counts so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Start starts a process at host number i and returns its access to the network. The former process must have
// ended, by Kill or PowerOff.
func (n *Network) Start(i int) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[i] != nil {
		panic(fmt.Sprintf("host %d has a process already", i))
	}
	h := &Host{network: n, number: i, listeners: make(map[int]*listener), nextPort: 40000}
	n.hosts[i] = h
	delete(n.off, i)
	return h
}

// DamageStreams chooses the streams that SetDamages may damage, by the first bytes that the host that opened them has sent. Those first
// bytes arrive as they were sent.
func (n *Network) DamageStreams(of func(first []byte) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mayHarm = of
}

// SetDamages changes a bit of one in twenty writes to the chosen streams of these links, in the direction of the link, and nothing on
// the others.
func (n *Network) SetDamages(links map[Link]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.harm = maps.Clone(links)
}

// damage changes a bit of what is sent through a pipe, or does not. The mutex is held.
func (n *Network) damage(p *pipe, data []byte) {
	if !p.mayHarm || !n.harm[p.link] || len(data) == 0 || n.rand.IntN(damageOneIn) != 0 {
		return
	}
	bit := n.rand.IntN(8 * len(data))
	data[bit/8] ^= 1 << (bit % 8)
	n.stats.Damaged++
}

// latency draws the time that one message takes. The mutex is held.
func (n *Network) latency(l Link) time.Duration {
	d := latencyMin + time.Duration(n.rand.Int64N(int64(latencyMax-latencyMin)))
	if n.rand.IntN(slowOneIn) == 0 {
		d += time.Duration(n.rand.Int64N(int64(slowMax)))
	}
	if extra := n.extra[l]; extra > 0 {
		d += time.Duration(n.rand.Int64N(int64(extra)))
	}
	return d
}

// isCut reports whether nothing gets through a link. The mutex is held.
func (n *Network) isCut(l Link) bool { return n.cut[l] || n.off[l.From] || n.off[l.To] }

// ip is the address of a host.
func ip(host int) net.IP { return net.IPv4(10, 0, 0, byte(host+1)).To4() }

// Address returns the host:port of a port of host i.
func Address(i, port int) string { return fmt.Sprintf("%s:%d", ip(i), port) }

// parse returns the host and the port of an address.
func parse(address string) (host, port int, err error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return 0, 0, err
	}
	four := at.IP.To4()
	if four == nil || four[0] != 10 {
		return 0, 0, fmt.Errorf("address %s is not of the simulated network", address)
	}
	return int(four[3]) - 1, at.Port, nil
}

func (t *packets) closeLocked() {
	if !t.isClosed {
		t.isClosed = true
		close(t.closed)
	}
}
