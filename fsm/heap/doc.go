// Package heap is a binary heap of elements of one type.
//
// It differs from container/heap in that its elements are stored without an interface, so that pushing one does not allocate. It imports
// nothing. A [Heap] is not safe for concurrent use.
package heap
