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
	// KeyID is the key of the id of the journal: a folder whose catalog has it keeps its entries in a journal.
	KeyID       = "journal/id"
	keySegments = "journal/segments"
)

// CopyCatalog enters the journal of one catalog into another one. The id is written last: a crash leaves a catalog that
// has the whole journal, or none.
func CopyCatalog(from, to Catalog) error {
	for _, key := range []string{keySegments, KeyID} {
		value, err := from.Get(key)
		if err != nil {
			return err
		}
		if err := to.Set(key, value); err != nil {
			return err
		}
	}
	return nil
}

// ClearCatalog removes the journal from a catalog, the id first: a crash leaves a catalog that has the whole journal,
// or none.
func ClearCatalog(c Catalog) error {
	for _, key := range []string{KeyID, keySegments} {
		if err := c.Set(key, nil); err != nil {
			return err
		}
	}
	return nil
}
