package queue

import (
	"cmp"
	"slices"

	"github.com/peeklock/peeklock/fsm/filter"
)

// correlatedMatches are the rules with correlation filters that match a message: scratch space.
type correlatedMatches struct {
	found, other []filter.Indexed[indexedRule]
}

// radixBits is the number of bits by which sorted sorts at a time.
const radixBits = 11

// sorted sorts a part of found by the numbers of the rules. It takes linear time whatever the order
// was: the index returns up to correlationRulesMax rules in as many runs as a filter has conditions.
func (l *correlatedMatches) sorted(part []filter.Indexed[indexedRule]) []filter.Indexed[indexedRule] {
	byNumber := func(a, b filter.Indexed[indexedRule]) int { return cmp.Compare(a.ID, b.ID) }
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

// forget makes the scratch space ready for the next message. It references rules.
func (l *correlatedMatches) forget() {
	clear(l.found)
	clear(l.other[:min(len(l.found), cap(l.other))])
	l.found, l.other = l.found[:0], l.other[:0]
}

// addCorrelated records the rules with correlation filters that match, those with an action in order.
func (q *Machine) addCorrelated() {
	list := &q.correlated
	acting := list.found[:0]
	for _, m := range list.found {
		if b := q.rulesOf(m.Value.subscription); m.Value.acting == nil {
			b.plain = true
		} else {
			acting = append(acting, m)
		}
	}
	for _, m := range list.sorted(acting) {
		b := &m.Value.subscription.rules
		b.matches = append(b.matches, ruleMatch{number: m.ID, rule: m.Value.acting, correlated: true})
	}
	list.forget()
}
