package message

import (
	"fmt"

	"github.com/peeklock/peeklock/amqp/wire"
	"github.com/peeklock/peeklock/fsm/filter"
)

// propertySet is a map of encoded keys and values that keeps their order. Its zero value is empty.
type propertySet struct {
	index       map[string]int   // text of the key -> index in pairs
	foldedIndex map[string][]int // the same, ignoring case, for rules; nil until needed
	pairs       []encodedPair
}

// encodedPair is one property; the key of a removed property is nil.
type encodedPair struct{ key, value []byte }

// put sets one property. key is an encoded string.
func (s *propertySet) put(key, value []byte) {
	text, _ := wire.StringOf(key)
	if i, ok := s.index[string(text)]; ok {
		s.pairs[i].value = value
		return
	}
	if s.index == nil {
		s.index = make(map[string]int)
	}
	name := string(text)
	s.index[name] = len(s.pairs)
	if s.foldedIndex != nil {
		folded := filter.Fold(name)
		s.foldedIndex[folded] = append(s.foldedIndex[folded], len(s.pairs))
	}
	s.pairs = append(s.pairs, encodedPair{key: key, value: value})
}

// find returns the encoded value of a property as rules find it, ignoring case; nil if there is none.
func (s *propertySet) find(name string) []byte {
	if s.foldedIndex == nil {
		s.indexFolded()
	}
	if found := s.foldedIndex[filter.Fold(name)]; len(found) > 0 {
		return s.pairs[found[0]].value
	}
	return nil
}

// change sets a property as rules do, ignoring case, or removes it if value is nil. An existing property keeps
// its spelling; of several that differ only in case, the first is kept.
func (s *propertySet) change(name string, value []byte) {
	if s.foldedIndex == nil {
		s.indexFolded()
	}
	folded := filter.Fold(name)
	found := s.foldedIndex[folded]
	if len(found) > 0 && value != nil {
		s.pairs[found[0]].value = value
		s.foldedIndex[folded], found = found[:1:1], found[1:]
	} else {
		delete(s.foldedIndex, folded)
	}
	for _, i := range found {
		text, _ := wire.StringOf(s.pairs[i].key)
		delete(s.index, string(text))
		s.pairs[i] = encodedPair{}
	}
	if len(s.foldedIndex[folded]) == 0 && value != nil {
		s.put(wire.AppendString(nil, name), value)
	}
}

// indexFolded builds the index that ignores case.
func (s *propertySet) indexFolded() {
	s.foldedIndex = make(map[string][]int, len(s.pairs))
	for i := range s.pairs {
		text, _ := wire.StringOf(s.pairs[i].key)
		folded := filter.Fold(string(text))
		s.foldedIndex[folded] = append(s.foldedIndex[folded], i)
	}
}

func (s *propertySet) merge(pairs *wire.MapIter) error {
	for {
		key, value, ok := pairs.Next()
		if !ok {
			break
		}
		s.put(key, value)
	}
	if err := pairs.Err(); err != nil {
		return fmt.Errorf("%w: %w", errPayload, err)
	}
	return nil
}

func (s *propertySet) appendMap(dst []byte) []byte {
	return wire.AppendMapOf(dst, func(dst []byte) ([]byte, int) {
		count := 0
		for _, p := range s.pairs {
			if p.key != nil {
				dst = append(append(dst, p.key...), p.value...)
				count++
			}
		}
		return dst, count
	})
}

// appendSection appends the application-properties section, or nothing if there are no properties.
func (s *propertySet) appendSection(dst []byte) []byte {
	if len(s.index) == 0 {
		return dst
	}
	return s.appendMap(wire.AppendSectionDescriptor(dst, wire.SectionApplicationProperties))
}
