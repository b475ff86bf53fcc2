package quantity

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/entity"
)

// Bytes is a number of bytes, 0 or more, such as 64MiB.
type Bytes int64 //nolint:recvcheck // Set changes it, and String prints a value

var _ pflag.Value = new(Bytes)

// Set implements pflag.Value.
func (b *Bytes) Set(text string) error {
	n, err := entity.ParseBytes(text)
	if err == nil {
		*b = Bytes(n)
	}
	return err
}

// String returns a text that Set reads.
func (b Bytes) String() string { return entity.FormatBytes(int64(b)) }

// Type implements pflag.Value.
func (Bytes) Type() string { return "bytes" }

// Duration is a length of time, 0 or more, such as 30s or PT30S. It has an end.
type Duration time.Duration //nolint:recvcheck // as Bytes

var _ pflag.Value = new(Duration)

// Set implements pflag.Value.
func (d *Duration) Set(text string) error {
	parsed, err := entity.ParseDuration(text)
	if err == nil && parsed == entity.Forever {
		err = fmt.Errorf("%.70q has no end here: write a length of time such as 30s or PT30S", text)
	}
	if err == nil {
		*d = Duration(parsed)
	}
	return err
}

// String returns a text that Set reads, such as 1m30s.
func (d Duration) String() string {
	if d == 0 {
		return "0" // pflag shows no such default
	}
	return entity.ShortDuration(time.Duration(d))
}

// Type implements pflag.Value.
func (Duration) Type() string { return "duration" }

// size is a number of bytes in memory.
type size struct{ to *int }

// Set implements pflag.Value.
func (s size) Set(text string) error {
	var b Bytes
	err := b.Set(text)
	if err == nil {
		*s.to = int(b)
	}
	return err
}

// String implements pflag.Value.
func (s size) String() string { return Bytes(*s.to).String() }

// Type implements pflag.Value.
func (size) Type() string { return Bytes(0).Type() }

// BytesVar adds a flag for a number of bytes.
func BytesVar(f *pflag.FlagSet, to *int, name string, value int, usage string) {
	*to = value
	f.Var(size{to}, name, usage)
}

// DurationVar adds a flag for a length of time.
func DurationVar(f *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	f.Var((*Duration)(to), name, usage)
}
