package journal

// Catalog stores small values beside the journal. What Set has written is durable when it returns, and a crash
// leaves all or nothing of it. An error of a full disk has changed nothing.
type Catalog interface {
	// Get returns nothing for a key that is not set.
	Get(key string) ([]byte, error)
	// Set stores a value; an empty one means that the key is not set.
	Set(key string, value []byte) error
}

// The keys of the catalog.
const (
	// KeyID is the key of the id of the journal: a catalog that has it belongs to a journal.
	KeyID       = "journal/id"
	keySegments = "journal/catalog"
)
