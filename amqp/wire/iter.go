package wire

import (
	"errors"
	"fmt"
)

// errNotMap reports that an encoded value is not of the type that an iterator reads.
var errNotMap = errors.New("map expected")

// ListIter iterates over an encoded list without decoding or allocating.
type ListIter struct {
	body []byte
	left uint32
	err  error
}

// IterList returns an iterator over the encoded list, which must fill value.
func IterList(value []byte) (ListIter, error) {
	if len(value) == 0 || !isList(value[0]) {
		return ListIter{}, fmt.Errorf("list expected")
	}
	body, count, err := openIter(value)
	return ListIter{body: body, left: count}, err
}

// Len returns the number of items not yet returned.
func (it *ListIter) Len() int { return int(it.left) }

// Next returns the next encoded item. ok is false at the end and after an error, which Err returns. The item
// is a part of the list.
func (it *ListIter) Next() (item []byte, ok bool) {
	if it.left == 0 || it.err != nil {
		return nil, false
	}
	rest, err := SkipValue(it.body)
	if err != nil {
		it.err = err
		return nil, false
	}
	item = it.body[:len(it.body)-len(rest)]
	it.body, it.left = rest, it.left-1
	if it.left == 0 && len(rest) != 0 {
		it.err = errTrailing // detected with the last item, returned by Err
	}
	return item, true
}

// Err returns the error that ended the iteration, if any.
func (it *ListIter) Err() error { return it.err }

// MapIter iterates over an encoded map without decoding or allocating.
type MapIter struct {
	items    ListIter
	headless bool // there is no count: the pairs end with the bytes
}

// IterMap returns an iterator over the encoded map, which must fill value.
func IterMap(value []byte) (MapIter, error) {
	if len(value) == 0 || value[0] != codeMap8 && value[0] != codeMap32 {
		return MapIter{}, errNotMap
	}
	body, count, err := openIter(value)
	if err == nil && count%2 != 0 {
		err = errOddMap
	}
	return MapIter{items: ListIter{body: body, left: count}}, err
}

// IterPairs returns an iterator over consecutive encoded keys and values without the head of a map.
func IterPairs(pairs []byte) MapIter {
	// An item takes at least one byte, so this count, rounded up to even, is never too low.
	return MapIter{items: ListIter{body: pairs, left: uint32(len(pairs)+1) &^ 1}, headless: true}
}

// Len returns the number of pairs not yet returned; after IterPairs it is an upper bound.
func (it *MapIter) Len() int { return it.items.Len() / 2 }

// Next returns the next encoded pair. ok is false at the end and after an error, which Err returns.
func (it *MapIter) Next() (key, value []byte, ok bool) {
	if it.headless && len(it.items.body) == 0 {
		return nil, nil, false
	}
	if key, ok = it.items.Next(); !ok {
		return nil, nil, false
	}
	if value, ok = it.items.Next(); !ok {
		return nil, nil, false
	}
	return key, value, true
}

// Err returns the error that ended the iteration, if any.
func (it *MapIter) Err() error { return it.items.err }

// openIter reads the head of the compound, which must fill value.
func openIter(value []byte) (body []byte, count uint32, err error) {
	data, rest, err := cut(value[0], value[1:])
	if err != nil {
		return nil, 0, err
	}
	if len(rest) != 0 {
		return nil, 0, errTrailing
	}
	count, body, err = items(value[0], data)
	if err != nil {
		return nil, 0, err
	}
	if uint64(count) > uint64(len(body)) {
		return nil, 0, errCount
	}
	if count == 0 && len(body) != 0 {
		return nil, 0, errTrailing
	}
	return body, count, nil
}

// The functions below read one encoded value without allocating. ok is false if the value has another type,
// null included, or is incomplete. Returned bytes are parts of value.
