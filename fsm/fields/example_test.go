package fields_test

import (
	"fmt"

	"github.com/peeklock/peeklock/fsm/fields"
)

type lock struct {
	Sequence uint64
	Owner    string
}

func (l *lock) fields(x *fields.Codec) {
	fields.Uint64(x, &l.Sequence)
	fields.Text(x, &l.Owner)
}

func Example() {
	x := fields.Encoder(nil)
	(&lock{Sequence: 300, Owner: "a"}).fields(&x)
	encoded := x.Buf
	fmt.Printf("% x\n", encoded)

	var l lock
	x = fields.Decoder(encoded)
	l.fields(&x)
	fmt.Println(l, x.End())

	x = fields.Decoder(append(encoded, 0))
	l.fields(&x)
	fmt.Println(x.End())
	// Output:
	// ac 02 01 61
	// {300 a} <nil>
	// trailing bytes
}
