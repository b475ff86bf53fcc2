package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// The limits of encryption between members.
const (
	drainBytesMax      = 64 << 10        // read from an untrusted peer before its stream is closed
	drainTimeout       = time.Second     // for that peer to close its end
	handshakeTimeout   = 5 * time.Second // for TLS and the header of one stream
	silentTimeout      = time.Second     // for the first byte of it
	opAlert            = "remote error"  // how crypto/tls marks an alert from the other end
	msgDialUntrusted   = "failed to open a stream to a member: no mutual trust"
	msgAcceptUntrusted = "stream refused: the peer is not trusted"
)

var (
	errPlainPeer     = errors.New("the other member does not use TLS and this one does: configure certificates for both, or for neither")
	errNoCertificate = errors.New("the other member presented no certificate")
)

// memberTLS is TLS on the streams between members. Both ends present a certificate of the same authorities.
// Names in certificates are not checked, because members are reached at the addresses that gossip reports. The
// header of a stream identifies the member, as without TLS: every holder of a certificate can act as any
// member. A nil *memberTLS leaves streams plain.
type memberTLS struct {
	server, client *tls.Config
}

// newTLS derives the configurations of both ends from one. It uses the given certificate (Certificates,
// GetCertificate, GetClientCertificate), authorities (those that the function returns at each handshake, else RootCAs) and clock,
// and sets everything else itself.
func newTLS(given *tls.Config, authorities func() *x509.CertPool) *memberTLS {
	if given == nil {
		return nil
	}
	config := given.Clone()
	config.MinVersion, config.MaxVersion = tls.VersionTLS13, 0
	if authorities == nil {
		authorities = func() *x509.CertPool { return given.RootCAs }
	}
	config.ClientCAs, config.ClientAuth = authorities(), tls.RequireAndVerifyClientCert
	config.InsecureSkipVerify = true // checkMember verifies everything but the name
	config.VerifyConnection = checkMember(authorities, config.Time)
	// Streams are long-lived, so sessions are not resumed: every full handshake uses the current
	// authorities and certificates.
	config.SessionTicketsDisabled, config.ClientSessionCache = true, nil
	config.DynamicRecordSizingDisabled = true // small first records only help browsers
	config.NextProtos, config.GetConfigForClient, config.VerifyPeerCertificate = nil, nil, nil
	server := config.Clone()
	server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.ClientCAs = authorities()
		return now, nil
	}
	return &memberTLS{server: server, client: config}
}

// checkMember returns a function that verifies the certificate of the other end. A member dials and accepts, so
// its certificate must be valid for clients and servers: a certificate that the same authority issued to a
// client only does not make its owner a member.
func checkMember(authorities func() *x509.CertPool, now func() time.Time) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errNoCertificate
		}
		options := x509.VerifyOptions{Roots: authorities(), Intermediates: x509.NewCertPool()}
		if now != nil {
			options.CurrentTime = now()
		}
		for _, c := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(c)
		}
		leaf := state.PeerCertificates[0]
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			options.KeyUsages = []x509.ExtKeyUsage{usage}
			if _, err := leaf.Verify(options); err != nil {
				return fmt.Errorf("certificate of %q: %w", leaf.Subject.CommonName, err)
			}
		}
		return nil
	}
}

// dial performs the TLS handshake on a dialled stream; ctx bounds it.
func (s *memberTLS) dial(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if s == nil {
		return conn, nil
	}
	c := tls.Client(conn, s.client)
	err := c.HandshakeContext(ctx)
	var other tls.RecordHeaderError
	if errors.As(err, &other) && isPeerMagic(other.RecordHeader[:]) {
		return nil, errPlainPeer
	}
	if err != nil {
		return nil, trustError{err}
	}
	return abruptConn{c}, nil
}

// accept performs the TLS handshake on an accepted stream, within handshakeTimeout. A peer without TLS gets the
// plain reply WantsTLS.
func (s *memberTLS) accept(conn net.Conn) (net.Conn, error) {
	if s == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	c := tls.Server(conn, s.server)
	err := c.HandshakeContext(ctx)
	var other tls.RecordHeaderError
	switch {
	case err == nil:
		return abruptConn{c}, nil
	case errors.As(err, &other) && isPeerMagic(other.RecordHeader[:]):
		closeUntrusted(conn, appendChecksum([]byte{byte(WantsTLS)}))
		return nil, errPlainPeer
	}
	if err = (trustError{err}); isUntrusted(err) {
		closeUntrusted(conn, nil) // TLS has already sent the reason
	}
	return nil, err
}

// closeUntrusted sends the last bytes, if any, to a peer that is not trusted, and waits until the peer could
// read them: closing a stream with unread bytes would reset it.
func closeUntrusted(conn net.Conn, word []byte) {
	if err := conn.SetDeadline(time.Now().Add(drainTimeout)); err != nil {
		return
	}
	if _, err := conn.Write(word); err != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, conn, drainBytesMax)
}

// abruptConn is a TLS stream that closes like a plain one: at once, and without the close_notify
// alert of TLS, which may wait 5 s for a peer that does not read. Frames and raft's messages carry
// their lengths, so a truncated stream is not mistaken for one that ended.
type abruptConn struct{ *tls.Conn }

// Close implements net.Conn.
func (s abruptConn) Close() error { return s.NetConn().Close() }

// trustError is a failed TLS handshake, or an alert from the other end.
type trustError struct{ err error }

func (e trustError) Error() string { return "tls: " + e.err.Error() }
func (e trustError) Unwrap() error { return e.err }

// isUntrusted reports whether an error is about the identity of the peer, not about the network.
func isUntrusted(err error) bool {
	var trust trustError
	var alert *net.OpError
	var refused RefusedError
	var timeout net.Error
	switch {
	case errors.Is(err, errPlainPeer), errors.As(err, &alert) && alert.Op == opAlert:
		return true
	case errors.As(err, &refused):
		return refused.Reply == WantsTLS || refused.Reply == WantsPlain
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ECONNRESET),
		errors.As(err, &timeout) && timeout.Timeout():
		return false
	}
	return errors.As(err, &trust)
}
