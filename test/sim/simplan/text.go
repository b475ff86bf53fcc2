package simplan

import (
	"fmt"
	"strings"
	"time"
)

// Class is a way in which a call of the file system or of the log store fails.
type Class string

// The classes.
const (
	NoSpace    Class = "ENOSPC"
	NoQuota    Class = "EDQUOT"
	NoFiles    Class = "EMFILE"
	IOError    Class = "EIO"
	ShortWrite Class = "short write"
	Hang1      Class = "hang 1 s"
	Hang5      Class = "hang 5 s"
	// LastingShortage fails every call of the member with the same stack for 20 seconds.
	LastingShortage Class = "shortage 20 s"
)

// FailedCall says which call of a simulation fails, and how. Number 0: none, the calls are only counted.
type FailedCall struct {
	Stack  uint64 // checksum of the callers with their lines, and of the name of the call
	Number int    // of the call among those with this stack, over all members, from 1 on
	Class  Class
}

// callPrefix begins the line of the call that fails.
const callPrefix = "call "

// Text is the plan as lines that Parse reads.
func (p *Plan) Text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d %d %d %v\n", p.Seed, p.Members, p.Partitions, p.Length)
	if p.Call != nil { // of one length: what a process does before the simulation must not depend on the call
		fmt.Fprintf(&s, "%s%016x %08d %-16s\n", callPrefix, p.Call.Stack, p.Call.Number, p.Call.Class)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&s, "%v %v %d %d %v %s\n", f.At, f.Length, f.Member, f.Other, f.Amount, f.Kind)
	}
	return s.String()
}

// Parse parses the output of Plan.Text.
func Parse(text string) (p Plan, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var length string
	if _, err := fmt.Sscan(lines[0], &p.Seed, &p.Members, &p.Partitions, &length); err != nil {
		return p, fmt.Errorf("parse plan: %w", err)
	}
	if p.Length, err = time.ParseDuration(length); err != nil {
		return p, fmt.Errorf("parse plan: %w", err)
	}
	for _, line := range lines[1:] {
		if call, is := strings.CutPrefix(line, callPrefix); is {
			fields := strings.SplitN(call, " ", 3)
			if len(fields) != 3 {
				return p, fmt.Errorf("parse plan: the call %q has %d fields", call, len(fields))
			}
			p.Call = &FailedCall{Class: Class(strings.TrimSpace(fields[2]))}
			if _, err := fmt.Sscanf(fields[0]+" "+fields[1], "%x %d", &p.Call.Stack, &p.Call.Number); err != nil {
				return p, fmt.Errorf("parse plan: %w", err)
			}
			continue
		}
		fields := strings.SplitN(line, " ", 6)
		if len(fields) != 6 {
			return p, fmt.Errorf("parse plan: the fault %q has %d fields", line, len(fields))
		}
		f := Fault{Kind: Kind(fields[5])}
		if _, err := fmt.Sscan(fields[2]+" "+fields[3], &f.Member, &f.Other); err != nil {
			return p, fmt.Errorf("parse fault %q: %w", line, err)
		}
		for i, to := range map[int]*time.Duration{0: &f.At, 1: &f.Length, 4: &f.Amount} {
			if *to, err = time.ParseDuration(fields[i]); err != nil {
				return p, fmt.Errorf("parse fault %q: %w", line, err)
			}
		}
		p.Faults = append(p.Faults, f)
	}
	return p, nil
}
