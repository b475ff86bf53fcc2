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

// The limits of an upload. A part is held in memory until the store has it, so that it can be
// sent again; while one is sent the next is read. With both on their way nothing is read, and
// a member waits a minute for a piece to be taken: a store that takes less than
// half a MiB a second is too slow.
const (
	partBytes     = 16 << 20
	partsInMemory = 2
	partsMax      = 10_000 // of one object, the bound of S3
	// ObjectBytesMax is the size of the largest object, in bytes: one partition.
	ObjectBytesMax = partBytes * partsMax
)

// errSourceFailed stands for the error of a writer where the library reads: that takes some errors,
// io.ErrUnexpectedEOF among them, for the end of the object.
var errSourceFailed = errors.New("the source broke off")

// bucket is a place in an object store. Every object is uploaded in parts, for how large it
// will be is not known; it comes to be when the last part is there and the upload is
// completed. What breaks off is aborted; what could not be aborted is no object, but is kept
// (and billed) until it is: stores have a rule for that.
type bucket struct {
	client           *minio.Client
	name             string
	prefix           string // empty, or with a slash at its end
	part             uint64 // bytes
	bytesMax         int64
	withoutChecksums bool // no checksum of parts: the library has none for this store
}

func (b *bucket) String() string { return "s3://" + b.name + "/" + b.prefix }

// Claim looks whether anything has a name with the prefix. A folder that a console has made, an
// empty object, is nothing.
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

// Put uploads what is written.
func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	from, to := io.Pipe()
	stored := make(chan error, 1)
	go func() {
		_, err := b.client.PutObject(ctx, b.name, b.prefix+name, &boundedReader{from: from, remaining: b.bytesMax}, -1, minio.PutObjectOptions{
			ContentType: "application/octet-stream", PartSize: b.part,
			ConcurrentStreamParts: true, NumThreads: partsInMemory, SendContentMd5: !b.withoutChecksums,
		})
		err = b.wrapError("write", name, err)
		_ = from.CloseWithError(err) // a writer that still writes gets the reason
		stored <- err
	}()
	err := write(to)
	if err != nil {
		_ = to.CloseWithError(errSourceFailed)
	} else {
		_ = to.Close()
	}
	failed := <-stored
	return cmp.Or(err, failed) // the former also when it is what the place told write
}

// Get opens an object. It is asked for when it is read first.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	o, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.wrapError("read", name, err)
	}
	return &bucketReader{b, name, o}, nil
}

// bucketReader is one that is being read.
type bucketReader struct {
	bucket *bucket
	name   string
	*minio.Object
}

// Read names what failed.
func (o *bucketReader) Read(p []byte) (int, error) {
	n, err := o.Object.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = o.bucket.wrapError("read", o.name, err)
	}
	return n, err
}

// boundedReader refuses more than left bytes before they are uploaded in vain.
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

// wrapError makes an *Error of what the library says, and says what to do where that is known.
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
