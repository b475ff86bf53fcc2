package simfs

import "bytes"

// pageBytes is the size of one page of a content. A sector is within one page.
const pageBytes = 4 << 10

// content is the bytes of a file. Two contents share their equal pages where they can, because most of what a journal
// reserves is zeros, and most of what is written is synced soon.
type content struct {
	pages []*page // nil: zeros
	size  int
}

// page is a part of one content, or of several: then it does not change any more.
type page struct {
	bytes    [pageBytes]byte
	isShared bool
}

var zeros [pageBytes]byte //nolint:gochecknoglobals // read only

// readAt returns how many bytes from at on it has copied.
func (c *content) readAt(p []byte, at int) (n int) {
	for n < len(p) && at+n < c.size {
		i, from := (at+n)/pageBytes, (at+n)%pageBytes
		b := &zeros
		if c.pages[i] != nil {
			b = &c.pages[i].bytes
		}
		n += copy(p[n:min(len(p), c.size-at)], b[from:])
	}
	return n
}

// writeAt writes bytes, and zeros between the former end and them.
func (c *content) writeAt(p []byte, at int) {
	if end := at + len(p); end > c.size {
		c.resize(end)
	}
	for len(p) > 0 {
		i, from := at/pageBytes, at%pageBytes
		n := min(len(p), pageBytes-from)
		if n == pageBytes && bytes.Equal(p[:n], zeros[:]) {
			c.pages[i] = nil
		} else {
			copy(c.own(i).bytes[from:], p[:n])
		}
		p, at = p[n:], at+n
	}
}

// resize cuts the content, or adds zeros.
func (c *content) resize(size int) {
	if size < c.size && size%pageBytes != 0 && c.pages[size/pageBytes] != nil {
		clear(c.own(size / pageBytes).bytes[size%pageBytes:])
	}
	count := (size + pageBytes - 1) / pageBytes
	if count < len(c.pages) {
		clear(c.pages[count:])
		c.pages = c.pages[:count]
	}
	for len(c.pages) < count {
		c.pages = append(c.pages, nil)
	}
	c.size = size
}

// own returns a page that no other content has.
func (c *content) own(i int) *page {
	switch p := c.pages[i]; {
	case p == nil:
		c.pages[i] = new(page)
	case p.isShared:
		c.pages[i] = &page{bytes: p.bytes}
	}
	return c.pages[i]
}

// copyFrom copies the bytes from one offset to another, which both contents have.
func (c *content) copyFrom(other *content, from, to int) {
	for from < to {
		i := from / pageBytes
		end := min(to, (i+1)*pageBytes)
		p := other.pages[i]
		switch isWhole := end-from == pageBytes; {
		case isWhole && p == nil:
			c.pages[i] = nil
		case isWhole:
			p.isShared = true
			c.pages[i] = p
		case p != nil:
			copy(c.own(i).bytes[from%pageBytes:][:end-from], p.bytes[from%pageBytes:])
		case c.pages[i] != nil:
			clear(c.own(i).bytes[from%pageBytes:][:end-from])
		}
		from = end
	}
}

// clone returns a copy.
func (c *content) clone() content {
	var copied content
	copied.resize(c.size)
	copied.copyFrom(c, 0, len(c.pages)*pageBytes)
	return copied
}

// byteAt returns one byte.
func (c *content) byteAt(at int) byte {
	if p := c.pages[at/pageBytes]; p != nil {
		return p.bytes[at%pageBytes]
	}
	return 0
}
