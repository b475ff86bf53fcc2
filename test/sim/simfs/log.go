package simfs

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/raftlog"
)

// OpenLog opens the store of a log. It is a raftlog.OpenStore. Removing its file removes the store.
func (f *FS) OpenLog(path string) (raftlog.Store, map[fsm.PartitionID]raftlog.IndexRange, error) {
	if err := f.failure(CallLogOpen, path); err != nil {
		return nil, nil, err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(f.mount, Open, path); err != nil {
		return nil, nil, err
	}
	folder, name, err := f.folder(Open, path)
	if err != nil {
		return nil, nil, err
	}
	n := folder.names[name]
	if n == nil {
		n = &node{log: &logData{entries: make(map[uint64]*raft.Log), values: make(map[string][]byte)}, changed: time.Now()}
		folder.change(nameChange{name: n})
	}
	if n.log == nil {
		return nil, nil, errors.New("open log: the file holds something else")
	}
	return &logStore{fs: f, log: n.log, path: path}, raftlog.RangesOf(slices.Collect(maps.Keys(n.log.entries))), nil
}

// logStore implements raftlog.Store: what a transaction has written is durable when it returns.
type logStore struct {
	fs   *FS
	log  *logData
	path string
}

func (s *logStore) GetLog(index uint64, out *raft.Log) error {
	if err := s.fs.failure(CallLogRead, s.path); err != nil {
		return err
	}
	d := s.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(s.fs.mount, Read, s.path); err != nil {
		return err
	}
	e := s.log.entries[index]
	if e == nil {
		return raft.ErrLogNotFound
	}
	*out = *e
	return nil
}

func (s *logStore) StoreLogs(entries []*raft.Log) error {
	return s.transact(CallLogStore, func() {
		for _, e := range entries {
			kept := *e
			kept.Data, kept.Extensions = slices.Clone(e.Data), slices.Clone(e.Extensions)
			s.log.entries[e.Index] = &kept
		}
	})
}

func (s *logStore) DeleteRange(low, high uint64) error {
	return s.transact(CallLogDelete, func() {
		for index := low; index <= high; index++ {
			delete(s.log.entries, index)
		}
	})
}

func (s *logStore) Set(key, value []byte) error {
	name, kept := string(key), slices.Clone(value)
	return s.transact(CallLogSet, func() { s.log.values[name] = kept })
}

func (s *logStore) Get(key []byte) ([]byte, error) {
	if err := s.fs.failure(CallLogGet, s.path); err != nil {
		return nil, err
	}
	d := s.fs.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(s.fs.mount, Read, s.path); err != nil {
		return nil, err
	}
	return slices.Clone(s.log.values[string(key)]), nil
}

func (s *logStore) Close() error { return nil }

// transact runs a transaction. A crash before it returns keeps all or nothing of it.
func (s *logStore) transact(call string, run func()) error {
	if err := s.fs.failure(call, s.path); err != nil {
		return err
	}
	d, t := s.fs.disk, &transaction{s.log, run}
	d.mu.Lock()
	err := d.check(s.fs.mount, Log, s.path)
	if err == nil && call != CallLogDelete && d.full {
		err = noSpace(s.path)
	}
	if err != nil {
		d.mu.Unlock()
		return err
	}
	d.inFlight = append(d.inFlight, t)
	d.mu.Unlock()
	d.wait(s.path)
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.Index(d.inFlight, t)
	if at < 0 {
		return d.check(s.fs.mount, Log, s.path) // the process has ended; its crash has decided
	}
	d.inFlight = slices.Delete(d.inFlight, at, at+1)
	t.run()
	return nil
}
