package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
)

// Dial opens a stream to another member, within Config.DialTimeout. The partition is used for backup streams
// only. If the other end refuses the stream, the error is a RefusedError.
func (p *Transport) Dial(ctx context.Context, kind Kind, to fsm.MemberID, id fsm.PartitionID) (net.Conn, error) {
	return p.dial(ctx, &streamHeader{Kind: kind, Partition: id, To: to})
}

// DialRaft opens a stream to the named replica of a partition at another member. It is like Dial otherwise.
func (p *Transport) DialRaft(ctx context.Context, to fsm.MemberID, id fsm.PartitionID, replica string) (net.Conn, error) {
	return p.dial(ctx, &streamHeader{Kind: RaftStream, Partition: id, To: to, Replica: replica})
}

// Probe reports whether the process of a member is alive: without an error it has answered the header of a stream for
// a partition that nobody holds. An error that wraps ECONNREFUSED means that the process has ended.
func (p *Transport) Probe(ctx context.Context, member fsm.MemberID) error {
	conn, err := p.DialRaft(ctx, member, ^fsm.PartitionID(0), "")
	if refused := (RefusedError{}); errors.As(err, &refused) && refused.Reply == NoReplica {
		return nil
	}
	if err == nil {
		err = conn.Close()
	}
	return err
}

// FindTwin reports whether another process with the identity of this member answers at an address.
func (p *Transport) FindTwin(ctx context.Context, address string) bool {
	conn, err := p.dialAt(ctx, &streamHeader{Kind: ForwardStream, To: p.config.Self}, address)
	if err == nil {
		_ = conn.Close()
	}
	refused := RefusedError{}
	return errors.As(err, &refused) && refused.Reply == Twin
}

func (p *Transport) dial(ctx context.Context, header *streamHeader) (net.Conn, error) {
	to := header.To
	address, err := p.config.Address(to)
	if err != nil {
		return nil, err
	}
	return p.dialAt(ctx, header, address)
}

func (p *Transport) dialAt(ctx context.Context, header *streamHeader, address string) (net.Conn, error) {
	to := header.To
	ctx, cancel := context.WithTimeout(ctx, p.config.DialTimeout)
	defer cancel()
	raw, err := p.config.Dial(ctx, "tcp", address)
	if err != nil {
		p.counts.failed.Add(1)
		return nil, fmt.Errorf("reach member %s: %w", to, err)
	}
	conn, err := p.tls.dial(ctx, raw)
	if err == nil {
		header.From, header.Cluster, header.Start = p.config.Self, p.config.Cluster(), p.config.Start
		err = p.sendHeader(ctx, &conn, header)
	}
	if refused := (RefusedError{}); errors.As(err, &refused) && (refused.Reply == OldStart || refused.Reply == Twin) {
		p.copied(fmt.Errorf("member %s at %s: %w", to, address, refused))
	}
	if err != nil {
		_ = raw.Close()
		p.counts.failed.Add(1)
		if isUntrusted(err) {
			p.counts.untrusted.Add(1)
		}
		if isUntrusted(err) && p.refusals.Allow("to "+string(to), time.Now()) {
			p.config.Logger.WarnContext(ctx, msgDialUntrusted, "peer", to, "address", address, "error", err)
		}
		return nil, fmt.Errorf("reach member %s at %s: %w", to, address, err)
	}
	p.counts.dialled.Add(1)
	return conn, nil
}

// sendHeader sends the header and waits for the reply. It replaces the connection by one that is closed when a later process of
// the other member is seen.
func (p *Transport) sendHeader(ctx context.Context, to *net.Conn, header *streamHeader) error {
	conn := *to
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(header.encode()); err != nil {
		return err
	}
	start, err := readReply(conn)
	if err == nil && header.To != p.config.Self {
		err = p.observe(header.To, header.Cluster, &start)
	}
	if err != nil {
		return err
	}
	if !stop() { // the deadline fired while the reply arrived
		return ctx.Err()
	}
	var ok bool
	if *to, ok = p.members.add(header.To, &start, conn); !ok {
		return starts.ErrOld
	}
	return nil
}
