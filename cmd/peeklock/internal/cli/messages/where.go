package messages

import (
	"time"

	"github.com/Azure/go-amqp"

	"github.com/peeklock/peeklock/fsm/filter"
)

// whereFlag parses --where while the flags are parsed, so that an invalid expression is a usage error.
type whereFlag struct{ to **filter.Expr }

// Set implements pflag.Value.
func (f whereFlag) Set(text string) (err error) {
	*f.to, err = filter.Parse(text, nil)
	return err
}

// String returns the expression in its canonical form.
func (f whereFlag) String() string {
	if f.to == nil || *f.to == nil {
		return ""
	}
	return (*f.to).String()
}

// Type implements pflag.Value.
func (whereFlag) Type() string { return "expression" }

// wireValue converts a value to the type that go-amqp sends.
func wireValue(v filter.Value) any {
	switch v.Kind() {
	case filter.KindNull:
	case filter.KindBool:
		return v.AsBool()
	case filter.KindInt:
		return v.AsInt()
	case filter.KindDouble:
		return v.AsDouble()
	case filter.KindText:
		return v.AsText()
	case filter.KindTime:
		return time.UnixMilli(v.AsInt()).UTC()
	case filter.KindGUID:
		return amqp.UUID([]byte(v.AsText()))
	case filter.KindBinary:
		return []byte(v.AsText())
	case filter.KindSpan: // refused by the caller: the client library cannot send it
	}
	return nil
}
