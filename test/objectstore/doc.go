// Package objectstore is an in-memory object store for tests. It implements the part of the S3
// protocol that backups need, over HTTP, and verifies signatures. The available alternatives
// do not verify signatures, or depend on the modules of a whole cloud.
//
// It supports listing (version 2); multipart uploads, which can be completed and aborted; and reading,
// also of ranges. It verifies the signature of a request and the MD5 of a part, but not the
// signatures of the chunks within a body.
package objectstore
