package filter

import (
	"math/bits"
	"unicode/utf8"
)

// matcher runs LIKE patterns as automata, 64 positions of the text at a time. For each byte there
// is a set of the positions at which the text has it, as a bitmap:
//
//	text            r e d   r o s e
//	has['r']        1 0 0 0 1 0 0 0
//	reached         1 0 0 0 0 0 0 0      at first: the start
//	'r'             0 1 0 0 0 0 0 0      (reached & has['r']) << 1
//
// So each unit of the pattern takes a few operations per 64 positions, whatever the text and the
// pattern are. The bitmaps of a longer property are kept until the next message, because many
// filters of a topic use the same properties.
//
// The zero value is ready for use. It allocates only to grow.
type matcher struct {
	scratch textBits // of a text that is not kept; empty between two calls
	kept    map[Property]int
	texts   []textBits // those that are kept
	memory  []uint64   // for their bitmaps; all zero from used on
	used    int
	idle    int // consecutive messages that needed little of memory
	reached []uint64
}

const (
	// keptTextBytesMin is the minimum length of a property whose bitmaps are kept.
	keptTextBytesMin = 65
	// bitmaps is the number of bitmaps of a text: one for each byte, and the inner positions. All
	// kept texts of a message, whose properties are 64 KiB, take 4.2 MB at most.
	bitmaps = 257
	// idleMax is the number of consecutive messages that need little of the memory before it is
	// released.
	idleMax = 256
)

// textBits are the bitmaps of one text; position len(text) is its end.
type textBits struct {
	words int      // of a bitmap
	has   []uint64 // one bitmap after the other, that of the inner positions last
	inner []uint64 // the positions at which no character begins
	plain bool     // there are none: every byte is a character
}

// forget releases the texts of the message.
func (m *matcher) forget() {
	if m.idle++; m.used > len(m.memory)/4 {
		m.idle = 0
	}
	if m.idle > idleMax {
		m.memory, m.reached, m.scratch, m.idle = nil, nil, textBits{}, 0
	}
	if len(m.kept) == 0 {
		return
	}
	clear(m.kept)
	clear(m.texts)
	clear(m.memory[:min(m.used, len(m.memory))])
	m.texts, m.used = m.texts[:0], 0
}

// match reports whether all of s matches the pattern. name is the property whose value s is, nil
// if it is not the value of one.
func (m *matcher) match(p *pattern, s string, name *Property) bool {
	if !p.utf8 {
		return p.matchBytewise(s)
	}
	units, from, to := p.units, 0, len(s)
	for ; len(units) > 0 && units[0] < anyCharacter; from++ { // literal bytes at the start
		if from == to || unit(s[from]) != units[0] {
			return false
		}
		units = units[1:]
	}
	for ; len(units) > 0 && units[len(units)-1] < anyCharacter; to-- { // and at the end
		if from == to || unit(s[to-1]) != units[len(units)-1] {
			return false
		}
		units = units[:len(units)-1]
	}
	switch {
	case len(units) == 0:
		return from == to
	case len(units) == 1 && units[0] == anyCharacters:
		return true
	}
	if name != nil && len(s) >= keptTextBytesMin {
		return m.run(m.keptBits(name, s), units, from, to)
	}
	m.scratch.build(s[from:to])
	found := m.run(&m.scratch, units, 0, to-from)
	m.scratch.reset(s[from:to])
	return found
}

// keptBits returns the bitmaps of a property, and makes them when they are not kept yet.
func (m *matcher) keptBits(name *Property, s string) *textBits {
	if i, found := m.kept[*name]; found {
		return &m.texts[i]
	}
	if m.kept == nil {
		m.kept = map[Property]int{}
	}
	n := bitmaps * (len(s)/64 + 1)
	if len(m.memory)-m.used < n {
		m.memory, m.used = make([]uint64, max(n, 2*len(m.memory))), 0 // earlier texts keep the old one
	}
	b := textBits{has: m.memory[m.used : m.used+n]}
	m.used += n
	b.build(s)
	m.kept[*name] = len(m.texts)
	m.texts = append(m.texts, b)
	return &m.texts[len(m.texts)-1]
}

// build sets the bitmaps of a text. No bits of another text may be set.
func (b *textBits) build(s string) {
	b.words = len(s)/64 + 1
	if n := bitmaps * b.words; len(b.has) < n {
		b.has = make([]uint64, n)
	}
	b.inner = b.has[256*b.words:][:b.words]
	high := byte(0)
	for i := range len(s) {
		c := s[i]
		high |= c
		b.has[int(c)*b.words+i>>6] |= 1 << (i & 63)
	}
	if b.plain = high < utf8.RuneSelf; b.plain {
		return
	}
	for i := 0; i < len(s); {
		_, n := utf8.DecodeRuneInString(s[i:])
		for i++; n > 1; n, i = n-1, i+1 {
			b.inner[i>>6] |= 1 << (i & 63)
		}
	}
}

// reset clears the bits that build set for the text.
func (b *textBits) reset(s string) {
	for i := range len(s) {
		b.has[int(s[i])*b.words+i>>6] = 0
	}
	if !b.plain {
		clear(b.inner)
	}
}

// run reports whether the units match the text between two positions at which characters begin.
func (m *matcher) run(b *textBits, units []unit, from, to int) bool {
	if len(m.reached) < b.words {
		m.reached = make([]uint64, b.words)
	}
	a := automaton{b: b, reached: m.reached[:to>>6+1], low: from >> 6, high: from >> 6}
	clear(a.reached[a.low:])
	a.reached[a.low] = 1 << (from & 63)
	for i, u := range units {
		switch u {
		case anyCharacters:
			first := a.low<<6 + bits.TrailingZeros64(a.reached[a.low])
			if first > to || i == len(units)-1 {
				return first <= to
			}
			a.anyString(first)
		case anyCharacter:
			a.step()
		default:
			a.literal(byte(u))
		}
		if !a.trim() {
			return false
		}
	}
	return a.reached[to>>6]&(1<<(to&63)) != 0
}

// automaton is the set of positions in a text that a pattern can have reached after some of its
// units.
type automaton struct {
	b         *textBits
	reached   []uint64
	low, high int // the words of reached that are not zero are between them
}

// literal advances by one literal byte.
func (a *automaton) literal(c byte) {
	at := int(c) * a.b.words
	has := a.b.has[at+a.low : at+a.high+1]
	reached := a.reached[a.low : a.high+1][:len(has)]
	carry := uint64(0)
	for i, h := range has {
		x := reached[i] & h
		reached[i], carry = x<<1|carry, x>>63
	}
	a.grow(carry)
}

// step advances by one character. When a character has several bytes, the carry of the sum runs
// through its inner bytes up to the beginning of the next character.
func (a *automaton) step() {
	carry := uint64(0)
	if a.b.plain {
		reached := a.reached[a.low : a.high+1]
		for i, x := range reached {
			reached[i], carry = x<<1|carry, x>>63
		}
		a.grow(carry)
		return
	}
	ripple := uint64(0)
	reached := a.reached[a.low : a.high+1]
	inners := a.b.inner[a.low : a.high+1][:len(reached)]
	for i, inner := range inners {
		x := reached[i]<<1 | carry
		carry = reached[i] >> 63
		sum, over := bits.Add64(x&inner, inner, ripple)
		reached[i], ripple = (x|sum)&^inner, over
	}
	if next := a.high + 1; next < len(a.reached) { // what runs over into a word that was empty
		inner := a.b.inner[next]
		sum, _ := bits.Add64(carry&inner, inner, ripple)
		a.grow((carry | sum) &^ inner)
	}
}

// grow appends a word after the last one.
func (a *automaton) grow(word uint64) {
	if word != 0 && a.high+1 < len(a.reached) {
		a.high++
		a.reached[a.high] = word
	}
}

// anyString marks every character from a position on as reached.
func (a *automaton) anyString(first int) {
	a.high = len(a.reached) - 1
	for i := a.low; i <= a.high; i++ {
		a.reached[i] = ^uint64(0)
		if !a.b.plain {
			a.reached[i] = ^a.b.inner[i]
		}
	}
	a.reached[a.low] &= ^uint64(0) << (first & 63)
}

// trim drops empty words at both ends. It reports false when no position is reached.
func (a *automaton) trim() bool {
	for a.low <= a.high && a.reached[a.low] == 0 {
		a.low++
	}
	for a.low <= a.high && a.reached[a.high] == 0 {
		a.high--
	}
	return a.low <= a.high
}
