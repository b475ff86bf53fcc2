package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"

	"github.com/minio/minio-go/v7"
)

// Limits of an upload. A part stays in memory until the store has it, so that it can be sent again; while one part
// is sent, the next one is read. While both are in flight, nothing is read, and a member waits a minute for each
// piece to be read: a store that accepts less than half a MiB per second is too slow.
const (
	partBytes     = 16 << 20
	partsInMemory = 2
	partsMax      = 10_000 // in one object, the limit of S3
	// ObjectBytesMax is the size of the largest object, in bytes. An object is one partition.
	ObjectBytesMax = partBytes * partsMax
)

// errSourceFailed stands for the error of a writer at the place where the library reads: the library takes some
// errors, io.ErrUnexpectedEOF among them, for the end of the object.
var errSourceFailed = errors.New("the source ended early")

// bucket is a prefix in a bucket of an object store. Every object is uploaded in parts, because its size is not
// known in advance. The object appears when the upload is completed after the last part. An interrupted upload is
// aborted. If the abort fails, the parts are not an object, but the store keeps (and bills) them until they are
// removed; stores have a lifecycle rule for that.
type bucket struct {
	client           *minio.Client
	name             string
	prefix           string // empty, or ends with a slash
	part             uint64 // bytes
	bytesMax         int64
	withoutChecksums bool // send no checksums of parts: the library has none for this store
}

func (b *bucket) String() string { return "s3://" + b.name + "/" + b.prefix }

// Claim checks that no object has a name with the prefix. It ignores a directory that a console has created, which
// is an empty object.
func (b *bucket) Claim(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	for o := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true, MaxKeys: 2}) {
		switch {
		case o.Err != nil:
			return b.wrapError("list", "", o.Err)
		case o.Key == b.prefix && o.Size == 0:
			continue
		}
		return &Error{Op: b.String(), Err: ErrNotEmpty, Hint: "give another prefix"}
	}
	return ctx.Err()
}

// Put uploads the bytes that write writes.
func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	from, to := io.Pipe()
	stored := make(chan error, 1)
	go func() {
		_, err := b.client.PutObject(ctx, b.name, b.prefix+name, &boundedReader{from: from, remaining: b.bytesMax}, -1, minio.PutObjectOptions{
			ContentType: "application/octet-stream", PartSize: b.part,
			ConcurrentStreamParts: true, NumThreads: partsInMemory, SendContentMd5: !b.withoutChecksums,
		})
		err = b.wrapError("write", name, err)
		_ = from.CloseWithError(err) // a writer that is still writing gets the reason
		stored <- err
	}()
	err := write(to)
	if err != nil {
		_ = to.CloseWithError(errSourceFailed)
	} else {
		_ = to.Close()
	}
	failed := <-stored
	return cmp.Or(err, failed) // the former also if write returned an error of the store
}

// Get opens an object. The request is sent at the first read.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	o, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.wrapError("read", name, err)
	}
	return &bucketReader{b, name, o}, nil
}

// bucketReader is an object that is being read.
type bucketReader struct {
	bucket *bucket
	name   string
	*minio.Object
}

// Read returns errors that name the object.
func (o *bucketReader) Read(p []byte) (int, error) {
	n, err := o.Object.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.bucket.wrapError("read", o.name, err)
	}
	return n, err
}

// boundedReader fails after remaining bytes, before more are uploaded in vain.
type boundedReader struct {
	from      io.Reader
	remaining int64
}

func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.remaining -= int64(n); r.remaining < 0 {
		return 0, errors.New("larger than an object store takes in one object: copy to a folder")
	}
	return n, err
}

// wrapError converts an error of the library to an *Error, with a hint if one is known.
func (b *bucket) wrapError(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	var answer minio.ErrorResponse
	errors.As(err, &answer)
	hint := ""
	switch answer.Code {
	case "NoSuchBucket":
		hint = "make the bucket first"
	case "NoSuchKey":
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken":
		hint = "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and whether that key may list, read and write here"
	case "AuthorizationHeaderMalformed", "PermanentRedirect":
		hint = "set AWS_REGION to the region of the bucket"
	case "RequestTimeTooSkewed":
		hint = "set the clock of this machine"
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		hint = "no object store answers there: look at AWS_ENDPOINT_URL_S3"
	}
	return &Error{Op: verb + " " + b.String() + name, Err: err, Hint: hint}
}
