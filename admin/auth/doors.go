package auth

import (
	"net"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// How often one address may fail to log in.
const (
	failuresAtOnceMax    = 20
	failuresPerSecondMax = 1
	addressesMax         = 10_000 // remembered; the one that was quiet for longest is forgotten
	siteBits             = 64     // of an IPv6 address: what one customer is given as a rule
)

// doors counts failures by address. Loopback is never shut: behind a proxy on this machine
// one bad client would lock everybody out.
type doors struct {
	now   func() time.Time
	known *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newDoors(now func() time.Time) *doors {
	known, err := lru.New[netip.Prefix, *rate.Limiter](addressesMax)
	if err != nil {
		panic(err) // addressesMax is positive
	}
	return &doors{now: now, known: known}
}

// open says whether somebody at an address may try.
func (d *doors) open(peer net.Addr) bool {
	site, counts := siteOf(peer)
	if !counts {
		return true
	}
	limiter, ok := d.known.Get(site)
	return !ok || limiter.TokensAt(d.now()) >= 1
}

// failed counts a failure.
func (d *doors) failed(peer net.Addr) {
	site, counts := siteOf(peer)
	if !counts {
		return
	}
	fresh := rate.NewLimiter(failuresPerSecondMax, failuresAtOnceMax)
	limiter, found, _ := d.known.PeekOrAdd(site, fresh)
	if !found {
		limiter = fresh
	}
	limiter.AllowN(d.now(), 1)
}

// siteOf is what an address is counted by, and whether it is counted at all.
func siteOf(peer net.Addr) (netip.Prefix, bool) {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !address.IsValid() || address.IsLoopback() {
		return netip.Prefix{}, false
	}
	bits := address.BitLen()
	if address.Is6() {
		bits = siteBits
	}
	site, err := address.Prefix(bits)
	return site, err == nil
}
