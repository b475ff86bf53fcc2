package fsm_test

import (
	"bytes"
	"testing"

	"github.com/peeklock/peeklock/fsm"
)

// memory is the Bodies of the tests. It knows what is referred to, so that a body
// released twice, read after release or never released shows.
type memory struct {
	t      testing.TB
	next   uint32
	bodies map[fsm.Ref]body
}

type body struct {
	owner fsm.Owner
	bytes []byte
}

func newMemory(t testing.TB) *memory {
	return &memory{t: t, bodies: map[fsm.Ref]body{}}
}

func (m *memory) Append(owner fsm.Owner, b []byte) fsm.Ref {
	m.next++
	ref := fsm.Ref{Segment: 1, Offset: m.next, Size: uint32(len(b))}
	m.bodies[ref] = body{owner: owner, bytes: bytes.Clone(b)}
	return ref
}

func (m *memory) Read(ref fsm.Ref) []byte {
	b, ok := m.bodies[ref]
	if !ok {
		m.t.Errorf("read of %v, which is not held", ref)
	}
	return b.bytes
}

func (m *memory) Release(ref fsm.Ref) {
	if _, ok := m.bodies[ref]; !ok {
		m.t.Errorf("release of %v, which is not held", ref)
	}
	delete(m.bodies, ref)
}

// keptBodies is a Bodies that keeps everything: for benchmarks whose messages are published by pulses.
type keptBodies struct{ bodies [][]byte }

func (k *keptBodies) Append(_ fsm.Owner, b []byte) fsm.Ref {
	k.bodies = append(k.bodies, bytes.Clone(b))
	return fsm.Ref{Segment: 1, Offset: uint32(len(k.bodies)), Size: uint32(len(b))}
}
func (k *keptBodies) Read(ref fsm.Ref) []byte { return k.bodies[ref.Offset-1] }
func (k *keptBodies) Release(fsm.Ref)         {}

// discardBodies is a Bodies that keeps nothing: for benchmarks.
type discardBodies struct{ next uint32 }

func (n *discardBodies) Append(_ fsm.Owner, b []byte) fsm.Ref {
	n.next++
	return fsm.Ref{Segment: 1, Offset: n.next, Size: uint32(len(b))}
}
func (n *discardBodies) Read(fsm.Ref) []byte { return nil }
func (n *discardBodies) Release(fsm.Ref)     {}
