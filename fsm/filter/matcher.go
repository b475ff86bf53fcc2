package filter

import (
	"math/bits"
	"unicode/utf8"
)

// matcher runs LIKE patterns as automata, 64 positions of the text at a time. For each byte
// there is a set of the positions at which the text has it, as a bitmap:
//
//	text            r e d   r o s e
//	has['r']        1 0 0 0 1 0 0 0
//	reached         1 0 0 0 0 0 0 0      at first: the start
//	'r'             0 1 0 0 0 0 0 0      (reached & has['r']) << 1
//
// So each unit of the pattern costs a few operations for 64 positions, whatever the text and
// the pattern are. The bitmaps of a longer property are kept as long as the message is the
// same: the filters of a topic ask for the same properties again and again.
//
// Its zero value is ready. It allocates only to grow.
type matcher struct {
	other   textBits // of a text that is not kept; empty between two calls
	kept    map[Property]int
	texts   []textBits // those that are kept
	room    []uint64   // for their bitmaps; behind used all is zero
	used    int
	idle    int // messages in a row that needed little of the room
	reached []uint64
}

const (
	// keptTextBytesMin is the length from which on the bitmaps of a property are kept.
	keptTextBytesMin = 65
	// bitmaps is how many a text has: one for each byte, and the inner positions. All kept
	// texts of a message, whose properties are 64 KiB, take 4.2 MB at most.
	bitmaps = 257
	// idleMax is after how many messages with short texts large room is given back.
	idleMax = 256
)

// textBits are the bitmaps of one text; position len(text) is its end.
type textBits struct {
	words int      // of a bitmap
	has   []uint64 // bitmaps one behind the other, that of the inner positions last
	inner []uint64 // the positions at which no character begins
	plain bool     // there are none: every byte is a character
}

// forget lets the texts of the message go.
func (m *matcher) forget() {
	if m.idle++; m.used > len(m.room)/4 {
		m.idle = 0
	}
	if m.idle > idleMax {
		m.room, m.reached, m.other, m.idle = nil, nil, textBits{}, 0
	}
	if len(m.kept) == 0 {
		return
	}
	clear(m.kept)
	clear(m.texts)
	clear(m.room[:min(m.used, len(m.room))])
	m.texts, m.used = m.texts[:0], 0
}

// match says whether all of s fits the pattern. name is that of the property which s is the
// value of, nil if it is none.
func (m *matcher) match(p *pattern, s string, name *Property) bool {
	if !p.utf8 {
		return p.crawl(s)
	}
	units, from, to := p.units, 0, len(s)
	for ; len(units) > 0 && units[0] < anyCharacter; from++ { // what stands at the start
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
		return m.run(m.keep(name, s), units, from, to)
	}
	m.other.take(s[from:to])
	found := m.run(&m.other, units, 0, to-from)
	m.other.drop(s[from:to])
	return found
}

// keep finds the bitmaps of a property, or makes them.
func (m *matcher) keep(name *Property, s string) *textBits {
	if i, found := m.kept[*name]; found {
		return &m.texts[i]
	}
	if m.kept == nil {
		m.kept = map[Property]int{}
	}
	n := bitmaps * (len(s)/64 + 1)
	if len(m.room)-m.used < n {
		m.room, m.used = make([]uint64, max(n, 2*len(m.room))), 0 // texts of before keep the old one
	}
	b := textBits{has: m.room[m.used : m.used+n]}
	m.used += n
	b.take(s)
	m.kept[*name] = len(m.texts)
	m.texts = append(m.texts, b)
	return &m.texts[len(m.texts)-1]
}

// take makes the bitmaps of a text, where none of another one are.
func (b *textBits) take(s string) {
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

// drop takes back what take did with the text.
func (b *textBits) drop(s string) {
	for i := range len(s) {
		b.has[int(s[i])*b.words+i>>6] = 0
	}
	if !b.plain {
		clear(b.inner)
	}
}

// run says whether the units fit the text between two positions at which characters begin.
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
			a.spread(first)
		case anyCharacter:
			a.step()
		default:
			a.eat(byte(u))
		}
		if !a.trim() {
			return false
		}
	}
	return a.reached[to>>6]&(1<<(to&63)) != 0
}

// automaton is where a pattern can stand in a text after some of its units.
type automaton struct {
	b         *textBits
	reached   []uint64
	low, high int // the words of reached that are not all zero lie between them
}

// eat goes on behind a byte.
func (a *automaton) eat(c byte) {
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

// step goes on behind one character. Where a character has more bytes, the sum runs through
// the inner ones up to the next beginning.
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

// grow adds the word behind the last one.
func (a *automaton) grow(word uint64) {
	if word != 0 && a.high+1 < len(a.reached) {
		a.high++
		a.reached[a.high] = word
	}
}

// spread reaches every character from a position on.
func (a *automaton) spread(first int) {
	a.high = len(a.reached) - 1
	for i := a.low; i <= a.high; i++ {
		a.reached[i] = ^uint64(0)
		if !a.b.plain {
			a.reached[i] = ^a.b.inner[i]
		}
	}
	a.reached[a.low] &= ^uint64(0) << (first & 63)
}

// trim leaves the empty words at both ends out. It reports false when nothing is reached.
func (a *automaton) trim() bool {
	for a.low <= a.high && a.reached[a.low] == 0 {
		a.low++
	}
	for a.low <= a.high && a.reached[a.high] == 0 {
		a.high--
	}
	return a.low <= a.high
}
