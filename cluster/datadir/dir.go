package datadir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/peeklock/peeklock/cluster/gossip"
	"github.com/peeklock/peeklock/cluster/starts"
	"github.com/peeklock/peeklock/fsm"
	"github.com/peeklock/peeklock/partition/disk"
)

// identityFormat is the format of member.json.
const identityFormat = 1

// identityBytesMax is the most that is read as member.json, in bytes.
const identityBytesMax = 64 * 1024

// identityMode lets the group of the process read the identity.
const identityMode fs.FileMode = 0o640

// The names of the files in a data folder.
const (
	identityFile = "member.json"
	lockName     = "lock"
	logName      = "raft.db"
	logCopyName  = "raft.db.copy"
	journalName  = "journal"
	groupsName   = "groups"
	asideName    = "removed" // the data of the last member that was removed and whose folder a new one took over
)

// Log says where the entries of the log of a folder are.
type Log string

// The logs that a folder can have.
const (
	BoltLog    Log = "bolt"    // in raft.db
	JournalLog Log = "journal" // in the folder of the journal
)

// ErrOtherLog says that a folder was created with another log than the one that is asked for.
var ErrOtherLog = errors.New("the data folder was created with another log store")

// ErrRemoved says that this member was removed from its cluster: it holds nothing and takes
// part in nothing. Its folder can be emptied to start over as a new member.
var ErrRemoved = errors.New("this member was removed from its cluster for good: empty its data folder to start over as a new one")

// ErrCopied says that another process has, or had, the identity of this folder.
var ErrCopied = errors.New("another process has used the identity of this member: the data folder is a copy, or was replaced by an older one. " +
	"Replace the member by a new one with an empty folder; only after a restore of the volumes of all members, or if no other process with this identity ever ran, " +
	"start it once with --accept-rollback")

// Identity is member.json: what a member keeps about itself outside of raft.
type Identity struct {
	Format int          `json:"format"`
	Draft  uint32       `json:"draft"` // see fsm.FormatDraft
	Member fsm.MemberID `json:"member"`
	// Cluster is the id of the cluster that the data belongs to, once it is known.
	Cluster string `json:"cluster,omitempty"`
	// Pledge are the members with which this one has pledged to bootstrap a cluster (package
	// bootstrap). It is written before the pledge is granted.
	Pledge []fsm.MemberID `json:"pledge,omitempty"`
	// Bootstrapping says that all of Pledge have pledged and the bootstrap may have begun.
	Bootstrapping bool `json:"founding,omitempty"`
	// Level is the last known format level of the cluster: a binary that can read less does not start.
	Level uint32 `json:"level,omitempty"`
	// Log says where the entries of the log are. It is empty until the first start opens the log, and does not change afterwards.
	Log Log `json:"log,omitempty"`
	// CatalogReplica is the number of this member's replica of the catalog, 0 for the first.
	CatalogReplica uint32 `json:"catalog_replica,omitempty"`
	// Start is the newest start of the member.
	Start starts.Start `json:"start"`
	// Copied says that another process has used this identity.
	Copied bool `json:"copied,omitempty"`
	// Removed says that the cluster has removed this member for good.
	Removed bool `json:"removed,omitempty"`
}

// CatalogNumber returns the number of this member's replica of the catalog.
func (i *Identity) CatalogNumber() uint32 { return max(1, i.CatalogReplica) }

// check returns an error for an identity that this binary does not understand.
func (i *Identity) check() error {
	switch {
	case i.Format == 0:
		return errors.New("it has no format: a build before release 0.1.0 wrote it, and no release reads that folder. Start over in an empty folder")
	case i.Format != identityFormat:
		return fmt.Errorf("it has format %d, this binary reads format %d: start the release that wrote it", i.Format, identityFormat)
	case i.Draft != fsm.FormatDraft:
		return fmt.Errorf("it has draft %d of the formats, this binary has draft %d, and before release 0.1.0 nothing converts between drafts: "+
			"start the build that wrote it, or start over in an empty folder", i.Draft, fsm.FormatDraft)
	case i.Log != "" && i.Log != BoltLog && i.Log != JournalLog:
		return fmt.Errorf("the log store is %q, this binary knows %s and %s: start the release that wrote it", i.Log, JournalLog, BoltLog)
	}
	return nil
}

// Dir is the open data folder of a member. Its methods may be called concurrently.
type Dir struct {
	files disk.FS
	path  string
	lock  io.Closer

	mu       sync.Mutex
	identity Identity
}

// Replica names a replica whose folder is in a data folder.
type Replica struct {
	Partition fsm.PartitionID
	Number    uint32
}

// Open reads the folder at path, or makes it with a new identity, and locks it against a second
// process. Nil files are those of the operating system. Errors wrap ErrRemoved for the folder of a removed member, and ErrCopied
// for one whose identity another process has.
func Open(files disk.FS, path string) (*Dir, error) {
	d, err := lockDir(files, path)
	if err != nil {
		return nil, err
	}
	if err := d.load(); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// OpenExisting is Open for a folder that must be the data folder of a member.
func OpenExisting(files disk.FS, path string) (*Dir, error) {
	if files == nil {
		files = disk.OS{}
	}
	if _, err := files.Stat(filepath.Join(path, identityFile)); err != nil {
		return nil, fmt.Errorf("open data folder: %w", err)
	}
	return Open(files, path)
}

// Create makes the folder of a new member at path, which must be empty or absent, and locks it. A new volume may have the
// folder lost+found. The folder cannot be opened again before Update has written the identity. Nil files are those of the operating system.
func Create(files disk.FS, path string) (*Dir, error) {
	if files == nil {
		files = disk.OS{}
	}
	names, err := files.ReadDir(path)
	switch {
	case err == nil && slices.ContainsFunc(names, func(e fs.DirEntry) bool {
		return e.Name() != "lost+found"
	}):
		return nil, errors.New("the folder is not empty: it may have the data of a member: name another one")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	d, err := lockDir(files, path)
	if err != nil {
		return nil, err
	}
	if err := syncPath(files, path); err != nil {
		_ = d.Close()
		return nil, err
	}
	d.identity = newIdentity()
	return d, nil
}

// syncPath makes the name of the folder durable, and those of the folders that contain it: without that, a loss of
// power may undo the creation of the folder, and with it everything that was synced in it. A folder that this process
// may not read was not created by it.
func syncPath(files disk.FS, path string) error {
	for parent := filepath.Dir(path); ; path, parent = parent, filepath.Dir(parent) {
		if err := files.SyncFolder(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("sync the name of folder %s: %w", path, err)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func lockDir(files disk.FS, path string) (*Dir, error) {
	if files == nil {
		files = disk.OS{}
	}
	if err := files.MkdirAll(filepath.Join(path, groupsName), 0o750); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	lock, err := files.Lock(filepath.Join(path, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock data folder %s: %w", path, err)
	}
	return &Dir{files: files, path: path, lock: lock}, nil
}

// newIdentity generates a member id: 128 random bits as text.
func newIdentity() Identity {
	return Identity{Format: identityFormat, Draft: fsm.FormatDraft, Member: fsm.MemberID(rand.Text())}
}

// load reads member.json or, in a folder that holds nothing else, generates an identity.
func (d *Dir) load() error {
	path := filepath.Join(d.path, identityFile)
	info, err := d.files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := d.files.Stat(d.LogPath()); err == nil {
			return fmt.Errorf("%s is missing although the folder holds a log: restore it, or start over in an empty folder", path)
		}
		if err := syncPath(d.files, d.path); err != nil {
			return err
		}
		return d.save(newIdentity())
	}
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if info.Size() > identityBytesMax {
		return fmt.Errorf("read identity: %s is %d bytes long: not ours", path, info.Size())
	}
	data, err := disk.ReadFile(d.files, path)
	if errors.Is(err, disk.ErrDamaged) {
		return fmt.Errorf("read identity: %w; put back %s, or replace this member by a new one with an empty folder", err, path)
	}
	if err != nil {
		return fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(data, &d.identity); err != nil {
		return fmt.Errorf("read identity %s: %w", path, err)
	}
	if err := d.identity.check(); err != nil {
		return fmt.Errorf("read identity %s: %w", path, err)
	}
	if d.identity.Removed {
		return ErrRemoved
	}
	if d.identity.Copied {
		return ErrCopied
	}
	if !gossip.ValidMemberID(d.identity.Member) {
		return fmt.Errorf("read identity %s: member %q is not an id", path, d.identity.Member)
	}
	if _, err := d.files.Stat(d.LogPath()); d.identity.Cluster != "" && errors.Is(err, fs.ErrNotExist) {
		// An empty replica under a known id could vote twice in one term.
		return fmt.Errorf("%s is missing although this was a member of cluster %s: restore it, or start over in an empty folder", d.LogPath(), d.identity.Cluster)
	}
	return nil
}

// Identity returns a copy of the identity.
func (d *Dir) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.identity
}

// Update changes the identity on disk, then in memory. After an error Identity returns the identity of
// before, and a crash leaves that one or the changed one. change must not modify slices in place.
func (d *Dir) Update(change func(*Identity)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.identity
	change(&changed)
	return d.save(changed)
}

// save replaces member.json, so that a crash leaves the old one or the new one, and then the identity in memory. The
// caller holds mu or is the only one to know d.
func (d *Dir) save(identity Identity) error {
	data, err := json.MarshalIndent(identity, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	if err := disk.WriteSynced(d.files, filepath.Join(d.path, identityFile), append(data, '\n'), identityMode); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	d.identity = identity
	return nil
}

// UseLog records the log of a new folder, before anything of it is written. It returns an error that wraps ErrOtherLog if the folder
// was created with another one.
func (d *Dir) UseLog(log Log) error {
	has := d.Identity().Log
	if has == "" {
		return d.Update(func(i *Identity) { i.Log = log })
	}
	if has != log {
		return fmt.Errorf("%w: %s has %s, and %s was asked for: start the member with --log-store %s. "+
			"To change it, replace the member by a new one with an empty folder", ErrOtherLog, d.path, has, log, has)
	}
	return nil
}

// LogPath is the path of the log of all replicas.
func (d *Dir) LogPath() string { return filepath.Join(d.path, logName) }

// ReplicaPath is the path of the folder of one replica.
func (d *Dir) ReplicaPath(id fsm.PartitionID, number uint32) string {
	return filepath.Join(d.path, groupsName, strconv.FormatUint(uint64(id), 10)+"."+strconv.FormatUint(uint64(number), 10))
}

// HasReplica reports whether a replica was ever opened here.
func (d *Dir) HasReplica(id fsm.PartitionID, number uint32) bool {
	_, err := d.files.Stat(d.ReplicaPath(id, number))
	return err == nil
}

// Replicas lists the replicas of message partitions whose folders are here, by partition and number.
func (d *Dir) Replicas() ([]Replica, error) {
	all, err := d.AllReplicas()
	return slices.DeleteFunc(all, func(r Replica) bool { return r.Partition == fsm.CatalogPartition }), err
}

// AllReplicas lists the replicas whose folders are here, those of the catalog too, by partition and number.
func (d *Dir) AllReplicas() ([]Replica, error) {
	entries, err := d.files.ReadDir(filepath.Join(d.path, groupsName))
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	var all []Replica
	for _, entry := range entries {
		if r, ok := parseReplicaFolder(entry.Name()); ok {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Replica) int {
		if a.Partition != b.Partition {
			return int(a.Partition) - int(b.Partition)
		}
		return int(a.Number) - int(b.Number)
	})
	return all, nil
}

// ReplicaFolders returns the folders of the replicas in a data folder, which need not be open.
func ReplicaFolders(path string) (map[string]Replica, error) {
	entries, err := disk.OS{}.ReadDir(filepath.Join(path, groupsName))
	if err != nil {
		return nil, fmt.Errorf("list replicas: %w", err)
	}
	all := make(map[string]Replica)
	for _, entry := range entries {
		if r, ok := parseReplicaFolder(entry.Name()); ok {
			all[filepath.Join(path, groupsName, entry.Name())] = r
		}
	}
	return all, nil
}

// parseReplicaFolder reads "<partition>.<number>".
func parseReplicaFolder(name string) (Replica, bool) {
	first, second, found := strings.Cut(name, ".")
	a, errA := strconv.ParseUint(first, 10, 32)
	b, errB := strconv.ParseUint(second, 10, 32)
	return Replica{fsm.PartitionID(a), uint32(b)}, found && errA == nil && errB == nil
}

// Close unlocks the folder. It may be called more than once.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close() // closing frees the lock
	d.lock = nil
	return err
}
