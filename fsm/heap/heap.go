package heap

// Ordered is implemented by elements of a heap.
type Ordered[T any] interface{ Before(other T) bool }

// Heap is a binary heap: the least element is at 0.
type Heap[T Ordered[T]] []T

// Push adds an element.
func (h *Heap[T]) Push(e T) {
	x := append(*h, e)
	*h = x
	for i := len(x) - 1; i > 0; {
		parent := (i - 1) / 2
		if !x[i].Before(x[parent]) {
			return
		}
		x[i], x[parent] = x[parent], x[i]
		i = parent
	}
}

// Pop removes and returns the least element.
func (h *Heap[T]) Pop() T {
	x := *h
	least, last := x[0], len(x)-1
	x[0] = x[last]
	*h = x[:last]
	h.down(0)
	return least
}

func (h *Heap[T]) down(i int) {
	x := *h
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(x); child++ {
			if x[child].Before(x[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		x[i], x[least] = x[least], x[i]
		i = least
	}
}

// Rebuild removes the elements for which valid is false, and releases capacity beyond slack.
func (h *Heap[T]) Rebuild(slack int, valid func(T) bool) {
	kept := (*h)[:0]
	for _, x := range *h {
		if valid(x) {
			kept = append(kept, x)
		}
	}
	if cap(*h) > 4*len(kept)+slack {
		kept = append(make([]T, 0, 2*len(kept)), kept...)
	}
	*h = kept
	for i := len(kept)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}
