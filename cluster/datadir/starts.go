package datadir

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"

	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

const (
	seenFile    = "peers.json" // the newest start that was seen of each other member
	seenMax     = 1024         // members in it
	seenVersion = 1
)

// BeginStart gives the process that has opened the folder a start of its own, before any other member learns of it. On a full disk it
// returns the start before, with which a copy of the folder is not found.
func (d *Dir) BeginStart() (starts.Start, error) {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	err := d.Update(func(i *Identity) { i.Start = i.Start.Next(max(1, binary.LittleEndian.Uint64(nonce[:]))) })
	if disk.IsRetriableWrite(err) {
		err = nil
	}
	return d.Identity().Start, err
}

// MarkCopied records that another process has the identity of this folder: it is opened again only after AcceptRollback.
func (d *Dir) MarkCopied() error { return d.Update(func(i *Identity) { i.Copied = true }) }

// AcceptRollback makes the folder at path the one that counts for its member, although another process may have used its identity.
// The next start follows every start that other members have seen, and this member forgets what it has seen of them. It returns the id
// of the member. No process may run on the folder.
func AcceptRollback(path string) (member fsm.MemberID, err error) {
	files := disk.OS{}
	if _, err := files.Stat(filepath.Join(path, identityFile)); err != nil {
		return "", fmt.Errorf("accept the rollback of a data folder: %w", err)
	}
	d, err := lockDir(files, path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.load(); err != nil && !errors.Is(err, ErrCopied) {
		return "", err
	}
	if err := files.Remove(filepath.Join(path, seenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("forget the starts of other members: %w", err)
	}
	return d.Identity().Member, d.Update(func(i *Identity) {
		i.Start.AcceptRollback()
		i.Copied = false
	})
}

// seenStarts is the content of peers.json.
type seenStarts struct {
	Format  int                           `json:"format"`
	Members map[fsm.MemberID]starts.Start `json:"members"`
}

// Seen remembers the newest start that was seen of each other member. Its methods may be called concurrently.
type Seen struct {
	dir *Dir

	writing sync.Mutex // held while the file is written, taken before mu

	mu      sync.Mutex
	members map[fsm.MemberID]starts.Start
	stored  bool
}

// OpenSeen reads what was seen. A file that cannot be read is an error: without it a copied folder would be believed.
func (d *Dir) OpenSeen() (*Seen, error) {
	s := &Seen{dir: d, members: make(map[fsm.MemberID]starts.Start), stored: true}
	path := filepath.Join(d.path, seenFile)
	data, err := disk.ReadFile(d.files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	var content seenStarts
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	if err == nil && content.Format != seenVersion {
		err = fmt.Errorf("it has format %d, this binary reads format %d", content.Format, seenVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; delete the file if no data folder was copied or restored", path, err)
	}
	maps.Copy(s.members, content.Members)
	return s, nil
}

// Observe records a start of another member. It returns nil when the start is durable here, an error that wraps starts.ErrOld if it
// cannot have followed the newest one, which is durable too, and any other error if it could not be written: it is then known until
// this process ends, and written with the next one.
func (s *Seen) Observe(member fsm.MemberID, start starts.Start) error {
	if done, err := s.enter(member, start); done {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	stored, content := s.stored, seenStarts{Format: seenVersion, Members: maps.Clone(s.members)}
	s.stored = true
	s.mu.Unlock()
	if stored { // with another one
		return nil
	}
	data, err := json.MarshalIndent(content, "", "  ")
	if err == nil {
		err = disk.WriteSynced(s.dir.files, filepath.Join(s.dir.path, seenFile), append(data, '\n'), identityMode)
	}
	if err != nil {
		s.mu.Lock()
		s.stored = false
		s.mu.Unlock()
		return fmt.Errorf("write the starts of other members: %w", err)
	}
	return nil
}

// enter reports whether there is nothing to write, and the error of a start that is old.
func (s *Seen) enter(member fsm.MemberID, start starts.Start) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.members[member]
	if err := start.Follows(seen); err != nil {
		return true, fmt.Errorf("member %s, start %d after start %d: %w", member, start.Count, seen.Count, err)
	}
	if known && start.Count == seen.Count {
		return s.stored, nil
	}
	if !known && len(s.members) >= seenMax {
		return true, nil
	}
	s.members[member], s.stored = start, false
	return false, nil
}
