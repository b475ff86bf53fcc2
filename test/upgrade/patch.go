package upgrade

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/test/overlay"
)

// Level is the format level of the next release.
const Level = fsm.FormatLevel + 1

// Tag is the build tag of tests that need the next release: they build with its overlay only.
const Tag = "level2"

// Tree returns the module with the changes of the next release.
func Tree() (overlay.Tree, error) {
	tree, err := overlay.Module()
	tree.Patches = patches()
	return tree, err
}

// Write writes the overlay of the next release to dir and returns its path, for `go build -overlay`.
func Write(dir string) (path string, err error) {
	tree, err := Tree()
	if err != nil {
		return "", err
	}
	path, err = overlay.Write(dir, tree)
	if err != nil {
		return "", fmt.Errorf("the next release cannot be made; adapt the patches in test/upgrade/patch.go to the code: %w", err)
	}
	return path, nil
}

// patches is what the next release changes.
func patches() []overlay.Patch {
	return []overlay.Patch{
		{"fsm/level.go", "const FormatLevel uint32 = ", "const FormatLevel uint32 = 1 + "},

		// Members of the former release in a simulation.
		{"cluster/config.go", "\treadableLevel uint32 //", "\tReadableLevel uint32\n\treadableLevel uint32 //"},
		{"cluster/start.go", "cmp.Or(n.config.readableLevel, ", "cmp.Or(n.config.readableLevel, n.config.ReadableLevel, "},

		// The kind of command that carries the field.
		{"fsm/kind.go", "type Kind uint8\n", "type Kind uint8\n\n// KindSendMarked is the kind of a SendMessages with a mark.\nconst KindSendMarked Kind = 200\n"},
		{"fsm/kind.go", "\tKindSendMessages: {\n", `	KindSendMarked: {
		name: "marked send", machines: MachineQueues, level: FormatLevel, front: frontSend, grows: alwaysGrows, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SendMessages).MarkedFields) },
	},
	KindSendMessages: {
`},
		{"fsm/answers/answers.go", "fsm.KindReserveNumbers:\n\t\tx.number = ", "fsm.KindReserveNumbers, fsm.KindSendMarked:\n\t\tx.number = "},
		{"fsm/answers/answers.go", "fsm.KindReserveNumbers:\n\t\tres.Sequence = ", "fsm.KindReserveNumbers, fsm.KindSendMarked:\n\t\tres.Sequence = "},

		// The field.
		{"fsm/send_commands.go", "\tMessages []Message\n}", "\tMessages []Message\n\tMark uint64\n}"},
		{
			"fsm/send_commands.go", "func (SendMessages) kind() Kind { return KindSendMessages }\n\nfunc (c SendMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }\n",
			`func (c SendMessages) kind() Kind {
	if c.Mark != 0 {
		return KindSendMarked
	}
	return KindSendMessages
}

func (c SendMessages) encode(x fields.Codec) fields.Codec {
	if c.fields(&x); c.Mark != 0 {
		fields.Uint64(&x, &c.Mark)
	}
	return x
}

func (c *SendMessages) MarkedFields(x *fields.Codec) {
	c.fields(x)
	if fields.Uint64(x, &c.Mark); c.Mark == 0 {
		x.Fail(ErrKind)
	}
}
`,
		},
		{"fsm/queue/queues.go", "\tcase fsm.KindLockMessages:\n", `	case fsm.KindSendMarked:
		var c fsm.SendMessages
		c.MarkedFields(r)
		mustDecode(env, kind, r)
		if q.level < fsm.FormatLevel {
			return fsm.Result{Code: fsm.InvalidArgument}, fsm.Address{}
		}
		var sends []sentMessage
		for _, m := range c.Messages {
			sends = append(sends, sentMessage{id: []byte(m.ID), payload: m.Payload, ttl: m.TimeToLive, at: m.EnqueueAt, properties: m.Properties, session: []byte(m.Session), hasSession: m.HasSession})
		}
		res := q.send(c.Entity, sends)
		if res.Code == fsm.OK {
			q.marks += c.Mark
		}
		return res, fsm.Address{}
	case fsm.KindLockMessages:
`},

		// The section of the image.
		{"fsm/queue/queues.go", "\n// reset makes the machine an empty one.\n", "\n// Marks is the sum of the marks of all sends.\nfunc (q *Machine) Marks() uint64 { return q.marks }\n\n// reset makes the machine an empty one.\n"},
		{"fsm/queue/queues.go", "type Machine struct {\n", "type Machine struct {\n\tmarks uint64\n"},
		{"fsm/queue/image.go", "type queuesImage struct {\n", "type queuesImage struct {\n\tmarks uint64\n"},
		{"fsm/queue/image.go", "img := &queuesImage{", "img := &queuesImage{marks: q.marks, "},
		{"fsm/queue/image.go", "\timg.answers.Write(iw.Writer)\n", "\timg.answers.Write(iw.Writer)\n\tif img.level >= fsm.FormatLevel {\n\t\tiw.Uvarint(img.marks)\n\t}\n"},
		{"fsm/queue/image.go", "\tq.table.Read(r.Reader)\n", "\tq.table.Read(r.Reader)\n\tif q.level >= fsm.FormatLevel {\n\t\tq.marks = r.Uvarint()\n\t}\n"},

		// The client marks what it sends once every member can read it.
		{
			"cluster/client/submit.go", "\tq := &request{client: p,",
			"\tif c, isSend := command.(fsm.SendMessages); isSend && canWrite(p.transport, fsm.FormatLevel) {\n\t\tc.Mark = uint64(len(c.Messages))\n\t\tcommand = c\n\t}\n\tq := &request{client: p,",
		},
	}
}
