package objectstore

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// The region, the key and the bucket of every store.
const (
	KeyID  = "AKIATEST"
	Secret = "not/a+secret"
	Bucket = "copies"
	Region = "us-east-1"
)

const algorithm = "AWS4-HMAC-SHA256"

// signatureError returns the error code of the protocol for a wrong signature (version 4) of a
// request, or "".
func signatureError(r *http.Request) string {
	fields := map[string]string{}
	text, found := strings.CutPrefix(r.Header.Get("Authorization"), algorithm+" ")
	for _, field := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	id, scope, _ := strings.Cut(fields["Credential"], "/")
	parts := strings.Split(scope, "/") // date, region, s3, aws4_request
	switch {
	case !found || len(parts) != 4:
		return "AccessDenied"
	case id != KeyID:
		return "InvalidAccessKeyId"
	}
	names := strings.Split(fields["SignedHeaders"], ";")
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	request := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"),
		headers.String(), strings.Join(names, ";"), r.Header.Get("X-Amz-Content-Sha256"),
	}, "\n")
	sum := sha256.Sum256([]byte(request))
	key := []byte("AWS4" + Secret)
	for _, part := range parts {
		key = mac(key, part)
	}
	want := hex.EncodeToString(mac(key, strings.Join([]string{
		algorithm, r.Header.Get("X-Amz-Date"), scope, hex.EncodeToString(sum[:]),
	}, "\n")))
	if want != fields["Signature"] {
		return "SignatureDoesNotMatch"
	}
	return ""
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// decodeChunks decodes a body of chunks, each preceded by its size in hex and a signature. An empty chunk ends it.
func decodeChunks(r io.Reader) ([]byte, error) {
	in := bufio.NewReader(r)
	var whole bytes.Buffer
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		var size int64
		if _, err := fmt.Sscanf(line, "%x;", &size); err != nil {
			return nil, err
		}
		if size == 0 {
			return whole.Bytes(), nil
		}
		if _, err := io.CopyN(&whole, in, size); err != nil {
			return nil, err
		}
		if _, err := in.Discard(2); err != nil { // \r\n
			return nil, err
		}
	}
}
