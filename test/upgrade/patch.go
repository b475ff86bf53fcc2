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

		// The kind of command that carries the field.
		{"fsm/kind.go", "type Kind uint8\n", "type Kind uint8\n\n// KindSendMarked is the kind of a SendMessages with a mark.\nconst KindSendMarked Kind = 200\n"},
		{"fsm/kind.go", "\tKindSendMessages: {\n", `	KindSendMarked: {
		name: "marked send", machines: machineQueues, level: FormatLevel, front: frontSend, grows: true, brings: true,
		decode: func(x fields.Codec) (Command, fields.Codec) { return decodeAs(x, (*SendMessages).markedFields) },
	},
	KindSendMessages: {
`},
		{"fsm/answers.go", "KindReserveNumbers:\n\t\tx.number = ", "KindReserveNumbers, KindSendMarked:\n\t\tx.number = "},
		{"fsm/answers.go", "KindReserveNumbers:\n\t\tres.Sequence = ", "KindReserveNumbers, KindSendMarked:\n\t\tres.Sequence = "},

		// The field.
		{"fsm/send.go", "\tMessages []Message\n}", "\tMessages []Message\n\tMark uint64\n}"},
		{
			"fsm/send.go", "func (SendMessages) kind() Kind { return KindSendMessages }\n\nfunc (c SendMessages) encode(x fields.Codec) fields.Codec { c.fields(&x); return x }\n",
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

func (c *SendMessages) markedFields(x *fields.Codec) {
	c.fields(x)
	if fields.Uint64(x, &c.Mark); c.Mark == 0 {
		x.Fail(errKind)
	}
}
`,
		},
		{"fsm/queues.go", "\tcase KindLockMessages:\n", `	case KindSendMarked:
		var c SendMessages
		c.markedFields(r)
		mustDecode(env, kind, r)
		if q.level < FormatLevel {
			return Result{Code: InvalidArgument}, Address{}
		}
		var sends []sentMessage
		for _, m := range c.Messages {
			sends = append(sends, sentMessage{id: []byte(m.ID), payload: m.Payload, ttl: m.TimeToLive, at: m.EnqueueAt, properties: m.Properties, session: []byte(m.Session), hasSession: m.HasSession})
		}
		res := q.send(c.Entity, sends)
		if res.Code == OK {
			q.marks += c.Mark
		}
		return res, Address{}
	case KindLockMessages:
`},

		// The section of the image.
		{"fsm/queues.go", "\nfunc (q *Queues) reset() {", "\n// Marks is the sum of the marks of all sends.\nfunc (q *Queues) Marks() uint64 { return q.marks }\n\nfunc (q *Queues) reset() {"},
		{"fsm/queues.go", "type Queues struct {\n", "type Queues struct {\n\tmarks uint64\n"},
		{"fsm/image.go", "type queuesImage struct {\n", "type queuesImage struct {\n\tmarks uint64\n"},
		{"fsm/image.go", "img := &queuesImage{", "img := &queuesImage{marks: q.marks, "},
		{"fsm/image.go", "\tiw.answers(img.incarnations)\n", "\tiw.answers(img.incarnations)\n\tif img.level >= FormatLevel {\n\t\tiw.uvarint(img.marks)\n\t}\n"},
		{"fsm/image.go", "\tir.answers(&fresh.table)\n", "\tir.answers(&fresh.table)\n\tif fresh.level >= FormatLevel {\n\t\tfresh.marks = ir.uvarint()\n\t}\n"},

		// The client marks what it sends once every member can read it.
		{
			"cluster/client/client.go", "\tq := &request{client: p,",
			"\tif c, isSend := command.(fsm.SendMessages); isSend && p.canWrite(fsm.FormatLevel) {\n\t\tc.Mark = uint64(len(c.Messages))\n\t\tcommand = c\n\t}\n\tq := &request{client: p,",
		},
	}
}
