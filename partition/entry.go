package partition

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/fsm/fields"
	"github.com/peeklock/peeklock/partition/entrysum"
)

// The data of a raft log entry:
//
//	version  1 byte   entryVersion
//	wall     uvarint  milliseconds, the wall time of the entry
//	serving  uvarint  milliseconds, the serving time of the entry
//	batch    8 bytes  little endian; by it the proposer finds its callers again
//	count    uvarint  at least 1
//	count times:
//	  length uvarint
//	  command         as fsm.AppendCommand wrote it
//
// Nothing may follow. Numbers have their shortest form. Anything else stops the replica: it comes from a
// newer release, and skipping it would make replicas diverge.

const entryVersion byte = 0x91

var errNoCommands = errors.New("entry without commands")

// entryHead is the decoded front of an entry, with the commands that follow it.
type entryHead struct {
	times    fsm.Times
	batch    uint64
	count    int
	commands fields.Codec
}

// fields of an entry, but its version and commands.
func (h *entryHead) fields(x *fields.Codec) {
	fields.Int64(x, &h.times.Wall)
	fields.Int64(x, &h.times.Serving)
	fields.Fixed64(x, &h.batch)
}

// encodeEntry encodes the data of an entry. A checksum can be appended without a copy.
func encodeEntry(times fsm.Times, batch uint64, commands [][]byte) []byte {
	size := 1 + 4*binary.MaxVarintLen64 + entrysum.Bytes
	for _, c := range commands {
		size += binary.MaxVarintLen32 + len(c)
	}
	x := fields.Encoder(append(make([]byte, 0, size), entryVersion))
	h := entryHead{times: times, batch: batch}
	h.fields(&x)
	for i := range fields.Len(&x, &commands, 1) {
		fields.Bytes(&x, &commands[i])
	}
	return x.Buf
}

// decodeEntry decodes the front of an entry.
func decodeEntry(b []byte) (h entryHead, err error) {
	x := fields.Decoder(b)
	fields.Version(&x, entryVersion)
	h.fields(&x)
	if h.count = x.Count(1); h.count == 0 {
		x.Fail(errNoCommands)
	}
	h.commands = x
	return h, entryError(x.Err())
}

// next returns the next command. After the last one no bytes may be left.
func (h *entryHead) next(last bool) (command []byte, err error) {
	command, err = h.commands.Bytes(), h.commands.Err()
	if last {
		err = h.commands.End()
	}
	return command, entryError(err)
}

func entryError(err error) error {
	if err != nil {
		return fmt.Errorf("decode entry: %w", err)
	}
	return nil
}

// ReplayedEntry is what the machine made of an entry.
type ReplayedEntry struct {
	Times    fsm.Times // Serving is 0 where the entry has none
	Commands []ReplayedCommand
	Effects  []fsm.Effect
	// Digest covers the bytes of all entries up to this one and the results of their commands, as the
	// checkpoints of replicas do.
	Digest uint64
}

// ReplayedCommand is a command of an entry and its result.
type ReplayedCommand struct {
	Header  fsm.Header
	Command fsm.Command
	Result  fsm.Result
}

// decode decodes the data of an entry of commands, and calls visit with each of them.
func (got *ReplayedEntry) decode(data []byte, visit func(c *ReplayedCommand, command []byte)) error {
	head, err := decodeEntry(data)
	if err != nil {
		return err
	}
	got.Times = head.times
	for i := range head.count {
		command, err := head.next(i == head.count-1)
		if err != nil {
			return err
		}
		c := ReplayedCommand{}
		if c.Header, c.Command, err = fsm.DecodeCommand(command); err != nil {
			return fmt.Errorf("decode command %d: %w", i+1, err)
		}
		visit(&c, command)
		got.Commands = append(got.Commands, c)
	}
	return nil
}

// DecodeEntry decodes the commands of an entry, without their results. Commands that do not decode are missing, and the error
// tells why.
func DecodeEntry(e *SavedEntry) (got ReplayedEntry, err error) {
	if raft.LogType(e.Type) == raft.LogCommand {
		err = got.decode(e.Data, func(*ReplayedCommand, []byte) {})
	}
	return got, err
}
