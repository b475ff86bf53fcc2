package peer

import (
	"errors"
	"io"
	"time"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
)

// encodeReply returns the bytes of a reply.
func (p *Transport) encodeReply(reply Reply) []byte {
	x := fields.Encoder([]byte{byte(reply)})
	if reply == Accepted {
		p.config.Start.Fields(&x)
	}
	return appendChecksum(x.Buf)
}

var errDamagedReply = errors.New("the reply of the other member was damaged on its way")

// readReply reads a reply, and the start that follows Accepted. The error is a RefusedError for every other reply.
func readReply(r io.Reader) (start starts.Start, err error) {
	var encoded [1 + starts.Bytes + checksumBytes]byte
	if _, err := io.ReadFull(r, encoded[:1]); err != nil {
		return start, err // in TLS 1.3, a member that refuses this member's certificate reports it here
	}
	reply, end := Reply(encoded[0]), 1
	if reply == Accepted {
		end += starts.Bytes
	}
	if _, err := io.ReadFull(r, encoded[1:end+checksumBytes]); err != nil {
		return start, err
	}
	switch {
	case !hasChecksum(encoded[:end], encoded[end:end+checksumBytes]):
		return start, errDamagedReply
	case reply != Accepted:
		return start, RefusedError{reply}
	}
	x := fields.Decoder(encoded[1:end])
	start.Fields(&x)
	return start, x.End()
}

// observe records the start of another member of this cluster. An error means that its stream must be refused.
func (p *Transport) observe(member fsm.MemberID, cluster string, start *starts.Start) error {
	if p.config.Observe == nil || cluster == "" || p.config.Cluster() != cluster {
		return nil // no vote depends on it yet
	}
	err := p.config.Observe(member, *start)
	isOld, logs := errors.Is(err, starts.ErrOld), err != nil && p.refusals.Allow("start of "+string(member), time.Now())
	switch {
	case logs && isOld:
		p.config.Logger.Error("stream of a process refused: a later process of the member was seen, so its data folder is a copy or was replaced by an older one",
			"peer", member, "error", err)
	case logs:
		p.config.Logger.Warn("failed to record the start of a member", "peer", member, "error", err)
	}
	if isOld {
		return err
	}
	return nil
}

func (p *Transport) copied(err error) {
	if p.config.Copied != nil {
		p.config.Copied(err)
	}
}

// Halt closes all streams that are open and refuses new ones: this process is not the member any more.
func (p *Transport) Halt() { p.members.halt() }
