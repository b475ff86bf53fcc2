package counts

import (
	"testing"

	"github.com/peeklock/peeklock/amqp/wire"
)

// There are few conditions, all of them ours; even if there were more, the number of counts is limited.
func TestRefusalsCountedAreBounded(t *testing.T) {
	t.Parallel()
	var all Totals
	for i := range 2 * conditionsMax {
		all.CountRefusal(wire.Symbol(rune('a' + i)))
	}
	if len(all.refused) != conditionsMax {
		t.Errorf("%d conditions are counted", len(all.refused))
	}
}
