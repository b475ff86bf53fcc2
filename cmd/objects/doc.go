// Package objects has the stores for backups of a cluster: a directory, or a prefix in a bucket of an object store that
// speaks S3 (AWS, MinIO, Ceph, Google's in its S3 mode).
//
//	cluster backup ── Claim ── Put partition-0 ... Put partition-n ── Put manifest.json
//	restore        ── Get manifest.json ── Get partition-0 ... Get partition-n
//
// The commands of internal/cli/backups call this package: they read from the members and write here. No member knows about
// stores or their keys. The package does not know the content of the objects.
//
// A [Store] has what both kinds have in common: it is claimed while it is empty, stores objects by name, each
// completely or not at all, and returns them. That is enough:
//
//   - The manifest names the other objects and is put last, so a backup without it is no backup. Nothing has to be listed, and
//     an interrupted backup needs no cleanup to be harmless.
//   - The digests are in the manifest, so a store proves nothing about what it returns.
//
// Memory use does not depend on the size of the backup: a directory stores bytes as they arrive, a bucket a few
// parts at a time.
//
// It is the only package that imports the client library of object stores.
package objects
