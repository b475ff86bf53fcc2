package command

import (
	"time"

	"github.com/peeklock/peeklock/amqp/jsonmessage"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/fsm/filter"
)

// AMQPPair is [TypedPair] for an application property of a message. Errors are usage errors.
func AMQPPair(flag, pair string) (key string, value jsonmessage.Value, err error) {
	key, v, err := TypedPair(flag, pair)
	if err != nil {
		return "", value, err
	}
	switch v.Kind() {
	case filter.KindNull:
	case filter.KindBool:
		value.Go = v.AsBool()
	case filter.KindInt:
		value.Go = v.AsInt()
	case filter.KindDouble:
		value.Go = v.AsDouble()
	case filter.KindText:
		value.Go = v.AsText()
	case filter.KindTime:
		value.Go = time.UnixMilli(v.AsInt()).UTC()
	case filter.KindBinary:
		value.Go = []byte(v.AsText())
	case filter.KindGUID:
		value = jsonmessage.UUID([]byte(v.AsText()))
	case filter.KindSpan:
		return "", value, cli.Usagef("%s %s: AMQP has no durations", flag, key)
	}
	return key, value, nil
}
