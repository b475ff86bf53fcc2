package receiver

import (
	"context"
	"testing"
)

// TestSearchThatIsGivenUpPaysLater: a search that ends while another one pays has paid nothing, and owes what it has cost.
func TestSearchThatIsGivenUpPaysLater(t *testing.T) {
	t.Parallel()
	paying := NewWork()
	s := newScanner(Source{Work: &paying}, 0)
	paying.turn <- struct{}{} // another search pays
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if s.payAhead(given); s.paid != 0 {
		t.Errorf("%d units count as paid, want none", s.paid)
	}
	if s.settle(given, PeekCost); s.paid != -PeekCost {
		t.Errorf("%d units count as paid after a page, want %d", s.paid, -PeekCost)
	}
	<-paying.turn
	if s.payAhead(t.Context()); s.paid != s.expected {
		t.Errorf("%d units count as paid before the next page, want %d", s.paid, s.expected)
	}
}
