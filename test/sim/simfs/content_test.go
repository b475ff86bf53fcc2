package simfs

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestContentsThatShareAreIndependent compares two contents, of which parts are copied to and fro, with plain bytes.
func TestContentsThatShareAreIndependent(t *testing.T) {
	t.Parallel()
	const sizeMax = 5 * pageBytes
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		var got [2]content
		var want [2][]byte
		for range 100 {
			of := random.IntN(2)
			g, w, other := &got[of], want[of], want[1-of]
			switch random.IntN(5) {
			case 0, 1:
				p, at := make([]byte, random.IntN(2*pageBytes)), random.IntN(sizeMax)
				if random.IntN(2) == 0 {
					at = at / pageBytes * pageBytes
				}
				if random.IntN(3) != 0 {
					for i := range p {
						p[i] = byte(random.IntN(256))
					}
				}
				g.writeAt(p, at)
				w = append(w, make([]byte, max(0, at+len(p)-len(w)))...)
				copy(w[at:], p)
			case 2:
				size := random.IntN(sizeMax)
				g.resize(size)
				w = append(bytes.Clone(w[:min(size, len(w))]), make([]byte, max(0, size-len(w)))...)
			case 3:
				if most := min(len(w), len(other)); most > 0 {
					from := random.IntN(most)
					to := from + random.IntN(most-from+1)
					g.copyFrom(&got[1-of], from, to)
					copy(w[from:to], other[from:to])
				}
			case 4:
				*g, w = got[1-of].clone(), bytes.Clone(other)
			}
			want[of] = w
			for i := range got {
				read := make([]byte, got[i].size+1)
				if n := got[i].readAt(read, 0); n != got[i].size || !bytes.Equal(read[:n], want[i]) {
					t.Fatalf("seed %d: content %d differs", seed, i)
				}
				if n := got[i].size; n > 0 {
					if at := random.IntN(n); got[i].byteAt(at) != want[i][at] {
						t.Fatalf("seed %d: byte %d of content %d differs", seed, at, i)
					}
				}
			}
		}
	}
}
