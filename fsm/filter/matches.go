package filter

import (
	"cmp"
	"slices"
)

// Matches are the filters of an [Index] that match a message: space that is reused from one message to the next.
type Matches[T any] struct {
	Found []Indexed[T] // by the index
	other []Indexed[T] // as many
}

// radixBits is the number of bits by which Sorted sorts at a time.
const radixBits = 11

// Sorted sorts a part of Found by ID, and returns it, perhaps elsewhere: it is valid until Forget. It takes linear time whatever the order
// was: an index may return 100,000 filters in as many runs as a filter has conditions.
func (l *Matches[T]) Sorted(part []Indexed[T]) []Indexed[T] {
	byNumber := func(a, b Indexed[T]) int { return cmp.Compare(a.ID, b.ID) }
	if slices.IsSortedFunc(part, byNumber) {
		return part
	}
	if len(part) < 1<<radixBits {
		slices.SortFunc(part, byNumber)
		return part
	}
	most := slices.MaxFunc(part, byNumber).ID
	l.other = slices.Grow(l.other[:0], len(part))
	other := l.other[:len(part)]
	for shift := 0; most>>shift > 0; shift += radixBits {
		var starts [1<<radixBits + 1]int32
		for i := range part {
			starts[part[i].ID>>shift%(1<<radixBits)+1]++
		}
		for i := range 1 << radixBits {
			starts[i+1] += starts[i]
		}
		for i := range part {
			digit := part[i].ID >> shift % (1 << radixBits)
			other[starts[digit]] = part[i]
			starts[digit]++
		}
		part, other = other, part
	}
	return part
}

// Forget makes the space ready for the next message. It references values of the index.
func (l *Matches[T]) Forget() {
	clear(l.Found)
	clear(l.other[:min(len(l.Found), cap(l.other))])
	l.Found, l.other = l.Found[:0], l.other[:0]
}
