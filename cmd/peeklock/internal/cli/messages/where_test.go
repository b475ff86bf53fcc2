package messages

import (
	"strings"
	"testing"

	"github.com/peeklock/peeklock/fsm/filter"
)

func TestInvalidWhereIsRefusedWithTheFlags(t *testing.T) {
	t.Parallel()
	var where *filter.Expr
	if err := (whereFlag{&where}).Set("customer = = 7"); err == nil || !strings.Contains(err.Error(), "character 12") {
		t.Errorf("got %v", err)
	}
}
