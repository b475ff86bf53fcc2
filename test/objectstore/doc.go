// Package objectstore is an object store in memory for tests: the part of the S3 protocol that
// a copy needs, over HTTP, with signatures that are looked at. It is written here because the
// known ones look at no signature, or come with the module graph of a whole cloud.
//
// It knows: listing (version 2), uploading in parts, with completing and aborting, reading,
// also from the middle. It does not check the signatures of the pieces within a body, only the
// one of its request, and the MD5 of a part.
package objectstore
