// Package backups copies a cluster to a directory or an object store, and creates the data directory of a member from a copy.
//
//	backup.go rate.go  cluster backup, and the manifest
//	restore.go         restore
//
// Invariants:
//
//   - The manifest is written last: a store without one holds no backup.
//   - The catalog is copied first and last, and the last copy counts.
//   - Restore compares every file with the checksum in the manifest.
package backups
