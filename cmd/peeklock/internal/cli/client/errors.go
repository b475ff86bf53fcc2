package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli"
	"github.com/peeklock/peeklock/cmd/peeklock/internal/cli/output"
)

// IsBusy reports whether a member refused a request with the advice to repeat it.
func IsBusy(err error) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable
}

// IsCutOff reports whether a connection ended before an answer.
func IsCutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ErrNoMember reports that no member could be reached, so that nothing was done.
var ErrNoMember = errors.New("no member answers")

// errPlain reports a server without TLS at an https:// address.
var errPlain = errors.New("the server does not use TLS: write http:// instead of https://")

// answerTextMax is the number of characters of an answer in an error.
const answerTextMax = 200

// dialError returns the reason why a connection could not be opened, or nil if err has another cause. A server whose
// certificate is not accepted, or that does not use TLS, received no request either.
func dialError(err error) error {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return op.Err
	case errors.As(err, &certificate):
		return certificate
	case errors.Is(err, http.ErrSchemeMismatch):
		return errPlain
	}
	return nil
}

// responseError turns a response whose status is not 2xx into an error. After a timeout inside the cluster the
// outcome of a change is unknown.
func responseError(status int, method, base string, body []byte) error {
	var p api.Problem
	if json.Unmarshal(body, &p) != nil || p.Message == "" {
		text := output.Printable(strings.TrimSpace(string(body)), answerTextMax)
		switch {
		case status == http.StatusBadRequest && strings.HasPrefix(base, "http://") && strings.Contains(strings.ToLower(text), "https"):
			return fmt.Errorf("%s requires TLS: write https:// instead of http:// (it answered %q)", base, text)
		case text == "":
			return fmt.Errorf("%s does not answer like a Peeklock member: status %d", base, status)
		}
		return fmt.Errorf("%s does not answer like a Peeklock member: status %d, %q", base, status, text)
	}
	if status == http.StatusGatewayTimeout && method != http.MethodGet {
		return cli.Unknown(fmt.Errorf("it may or may not have been done: %w", &refusedError{p, status}))
	}
	return &refusedError{p, status}
}

// refusedError is a problem that the control API returned.
type refusedError struct {
	api.Problem

	status int // of HTTP
}

// ProblemCode returns the code and the tracking id, for scripts.
func (e *refusedError) ProblemCode() (code, trackingID string) { return e.Code, e.TrackingID }

// Error returns the text of the member.
func (e *refusedError) Error() string { return e.Message }

// IsNotFound reports whether a member answered that an entity does not exist.
func IsNotFound(err error) bool {
	return IsCode(err, "EntityNotFound")
}

// IsCode reports whether a member refused a request with this code.
func IsCode(err error, code string) bool {
	got, refused := Code(err)
	return refused && got == code
}

// Code returns the code with which a member refused a request; refused is false if err is something else.
func Code(err error) (code string, refused bool) {
	var p *refusedError
	if !errors.As(err, &p) {
		return "", false
	}
	return p.Code, true
}
