// Package objects is where copies of a cluster lie: a folder, or a prefix in a bucket of an
// object store that speaks S3 (AWS, MinIO, Ceph, Google's in its S3 mode).
//
//	cluster backup ── Claim ── Put partition-0 ... Put partition-n ── Put manifest.json
//	restore        ── Get manifest.json ── Get partition-0 ... Get partition-n
//
// The smallest thing that both kinds are is a [Place]: it is claimed when it is empty, takes
// objects by name, each there as a whole or not at all, and gives them back. That is enough:
//
//   - The manifest names the others and is put last, so a copy without it is no copy. Nothing
//     has to be listed, and nothing that broke off has to be cleared away to be harmless.
//   - The digests are in the manifest, so a place proves nothing about what it gives back.
//   - The one who copies is the command line, which reads from the members and writes here.
//     No member knows of places or of their keys.
//
// Memory does not grow with what is copied: a folder takes bytes as they come, a bucket some
// parts at a time.
//
// It is the only package that knows the client library of object stores.
package objects
