package raftlog

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/peeklock/peeklock/partition/disk"
)

// Set implements raft.StableStore. Raft writes the term of a vote and then its candidate, as two values. A
// crash between them would leave the new term with the candidate of an older vote, and that candidate would
// then get the vote of this term too. So the term is held back until the candidate follows, and both are
// written as one value.
func (g *Group) Set(key, value []byte) error {
	if string(key) != raftKeyVoteCand {
		return g.put(string(key), value)
	}
	g.mu.Lock()
	term, pending := g.voteTerm, g.votePending
	g.votePending = false
	g.mu.Unlock()
	if !pending {
		return fmt.Errorf("vote of group %d: candidate without a term", g.id)
	}
	return g.put(keyVote, append(binary.BigEndian.AppendUint64(nil, term), value...))
}

// Get implements raft.StableStore.
func (g *Group) Get(key []byte) ([]byte, error) {
	if string(key) != raftKeyVoteCand {
		return g.get(string(key))
	}
	_, cand, err := g.vote()
	return cand, err
}

// SetUint64 implements raft.StableStore.
func (g *Group) SetUint64(key []byte, value uint64) error {
	if string(key) == raftKeyVoteTerm {
		g.mu.Lock()
		g.voteTerm, g.votePending = value, true
		g.mu.Unlock()
		return nil
	}
	if string(key) == keyTerm {
		return g.putTerm(value)
	}
	return g.put(string(key), binary.BigEndian.AppendUint64(nil, value))
}

// putTerm writes the term. Raft panics and ends the process when that fails, so it does not fail while an
// instance runs: on a full disk raft's main goroutine waits here for space, and the replica answers no
// requests meanwhile. outdated ends its leadership, and WaitsForTerm its heartbeats, so that the others elect a leader and clients find
// it. When the replica stops, the goroutine ends here. A term that is stored already is not written again, which saves a sync per open.
func (g *Group) putTerm(term uint64) error {
	g.mu.RLock()
	known := g.term
	g.mu.RUnlock()
	if term == known && term != 0 {
		return nil
	}
	defer g.waitsForTerm.Store(false)
	for {
		err := g.put(keyTerm, binary.BigEndian.AppendUint64(nil, term))
		if err == nil {
			g.mu.Lock()
			g.term = term
			g.mu.Unlock()
			return nil
		}
		ended := g.instanceClosed.Load()
		if ended == nil {
			return err
		}
		if !disk.IsRetriableWrite(err) {
			runtime.Goexit() // stopOnFatal has stopped the replica
		}
		g.waitsForTerm.Store(true)
		if g.outdated != nil {
			go g.outdated(term)
		}
		select {
		case <-time.After(disk.RetryInterval):
		case <-*ended:
			runtime.Goexit()
		}
	}
}

// WaitsForTerm reports whether raft's main goroutine waits for space for the next term. If the replica led, it leads no more.
func (g *Group) WaitsForTerm() bool { return g.waitsForTerm.Load() }

// GetUint64 implements raft.StableStore.
func (g *Group) GetUint64(key []byte) (uint64, error) {
	if string(key) == raftKeyVoteTerm {
		term, _, err := g.vote()
		return term, err
	}
	v, err := g.get(string(key))
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("value %s of group %d has %d bytes", key, g.id, len(v))
	}
	if string(key) == keyTerm {
		g.mu.Lock()
		g.term = binary.BigEndian.Uint64(v)
		g.mu.Unlock()
	}
	return binary.BigEndian.Uint64(v), nil
}

func (g *Group) vote() (term uint64, cand []byte, err error) {
	v, err := g.get(keyVote)
	if err != nil {
		return 0, nil, err
	}
	if len(v) < 8 {
		return 0, nil, fmt.Errorf("vote of group %d has %d bytes", g.id, len(v))
	}
	return binary.BigEndian.Uint64(v), v[8:], nil
}

// VoteTerm returns the term of the last vote of the replica.
func (g *Group) VoteTerm() (uint64, error) { return g.GetUint64([]byte(raftKeyVoteTerm)) }

// SetTerm writes the first term of a group that begins with a backup.
func (g *Group) SetTerm(term uint64) error { return g.putTerm(term) }

// Owner returns the replica whose entries the log holds for the group, "" for none.
func (g *Group) Owner() (string, error) {
	v, err := g.get(keyReplica)
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read owner of group %d: %w", g.id, err)
	}
	return string(v), nil
}

// SetOwner claims the log for a replica, which has no entries in it.
func (g *Group) SetOwner(replica string) error {
	if err := g.forgetDamage(); err != nil {
		return err
	}
	return g.put(keyReplica, []byte(replica))
}

// forgetDamage deletes all entries of the group if some of them cannot be read.
func (g *Group) forgetDamage() error {
	j := g.log.journal
	if j == nil || j.Damage(uint32(g.id)) == nil {
		return nil
	}
	if err := g.stopOnFatal(g.log.transact(func() error { return j.Forget(uint32(g.id)) })); err != nil {
		return fmt.Errorf("delete the damaged log of group %d: %w", g.id, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.first, g.last = 0, 0
	g.cache.reset()
	return nil
}

// put writes a stable value of the group; an empty value means that it is not set.
func (g *Group) put(key string, value []byte) error {
	return g.stopOnFatal(g.log.transact(func() error { return g.log.store.Set(fmt.Appendf(nil, "%d/%s", g.id, key), value) }))
}

func (g *Group) get(key string) ([]byte, error) {
	v, err := g.log.store.Get(fmt.Appendf(nil, "%d/%s", g.id, key))
	if err == nil && len(v) == 0 {
		err = raftboltdb.ErrKeyNotFound
	}
	return v, err
}
