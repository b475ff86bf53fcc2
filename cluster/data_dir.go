package cluster

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/fsm"
)

// identityVersion is the format of member.json.
const identityVersion = 1

// memberFileBytesMax bounds what is read as member.json.
const memberFileBytesMax = 64 * 1024

// identity is member.json: what a member keeps about itself outside of raft.
type identity struct {
	Version int          `json:"version"`
	Member  fsm.MemberID `json:"member"`
	// Cluster is the id of the cluster that the data belongs to, once it is known.
	Cluster string `json:"cluster,omitempty"`
	// Pledge are the members together with which this one has promised to found a
	// cluster (bootstrap.go). It is written before the promise is given.
	Pledge []fsm.MemberID `json:"pledge,omitempty"`
	// Founding says that all of Pledge have promised and the founding may have begun.
	Bootstrapping bool `json:"founding,omitempty"`
	// Level is that of the cluster, as last heard of: a binary that knows less does not start.
	Level uint32 `json:"level,omitempty"`
	// Removed says that the cluster has removed this member for good.
	Removed bool `json:"removed,omitempty"`
}

// dataDir is the data folder of a member:
//
//	member.json                who this is, drawn once
//	lock                       held by the running process
//	raft.db                    the log of all groups (partition.OpenLog)
//	groups/<partition>.<n>/    replica n of a partition
type dataDir struct {
	dir      string
	lock     *os.File
	identity identity
}

// openDataDir makes or reads the folder, and locks it against a second process.
func openDataDir(dir string) (*dataDir, error) {
	if err := os.MkdirAll(filepath.Join(dir, "groups"), 0o750); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	f := &dataDir{dir: dir, lock: lock}
	if err := f.load(); err != nil {
		_ = f.close()
		return nil, err
	}
	return f, nil
}

// load reads member.json or, in a folder that holds nothing else, draws an identity.
func (f *dataDir) load() error {
	path := filepath.Join(f.dir, "member.json")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(f.logPath()); err == nil {
			return fmt.Errorf("%s is missing although the folder holds a log: restore it, or start over in an empty folder", path)
		}
		f.identity = identity{Version: identityVersion, Member: newMemberID()}
		return f.save()
	}
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if info.Size() > memberFileBytesMax {
		return fmt.Errorf("read identity: %s is %d bytes long: not ours", path, info.Size())
	}
	data, err := os.ReadFile(path) //nolint:gosec // in the operator's own data folder
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(data, &f.identity); err != nil {
		return fmt.Errorf("read identity %s: %w", path, err)
	}
	if f.identity.Version != identityVersion {
		return fmt.Errorf("read identity %s: version %d, this binary knows %d", path, f.identity.Version, identityVersion)
	}
	if f.identity.Removed {
		return ErrRemoved
	}
	if !gossip.ValidMemberID(f.identity.Member) {
		return fmt.Errorf("read identity %s: member %q is not an id", path, f.identity.Member)
	}
	if _, err := os.Stat(f.logPath()); f.identity.Cluster != "" && errors.Is(err, fs.ErrNotExist) {
		// An empty replica under a known id could vote twice in one term.
		return fmt.Errorf("%s is missing although this was a member of cluster %s: restore it, or start over in an empty folder", f.logPath(), f.identity.Cluster)
	}
	return nil
}

// save writes member.json so that a crash leaves the old one or the new one.
func (f *dataDir) save() error {
	data, err := json.MarshalIndent(f.identity, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	path := filepath.Join(f.dir, "member.json")
	if err := writeFileSync(path+".new", append(data, '\n')); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return syncDir(f.dir)
}

// update changes the identity durably.
func (f *dataDir) update(with func(*identity)) error {
	with(&f.identity)
	return f.save()
}

// logPath is where the log of all groups lies.
func (f *dataDir) logPath() string { return filepath.Join(f.dir, "raft.db") }

// replicaPath is the folder of one replica.
func (f *dataDir) replicaPath(id fsm.PartitionID, number uint32) string {
	return filepath.Join(f.dir, "groups", strconv.FormatUint(uint64(id), 10)+"."+strconv.FormatUint(uint64(number), 10))
}

// hasReplica says whether a replica was ever opened here.
func (f *dataDir) hasReplica(id fsm.PartitionID, number uint32) bool {
	_, err := os.Stat(f.replicaPath(id, number))
	return err == nil
}

func (f *dataDir) close() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close() // closing frees the lock
	f.lock = nil
	return err
}

// newMemberID draws 128 random bits as text.
func newMemberID() fsm.MemberID { return fsm.MemberID(rand.Text()) }

func writeFileSync(path string, data []byte) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640) //nolint:gosec // in the operator's own data folder
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.Sync()
}

func syncDir(dir string) (err error) {
	file, err := os.Open(dir) //nolint:gosec // the operator's own data folder
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Sync()
}
