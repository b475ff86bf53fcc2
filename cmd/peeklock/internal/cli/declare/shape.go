package declare

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// property is a key of a mapping in a document.
type property struct {
	name     string
	index    []int // of the field, for reflect
	of       reflect.Type
	required bool
	setting  *entity.Setting // nil: it is no setting of an entity
}

// kinds are the types whose settings are those of a kind of entity.
var kinds = map[reflect.Type]fsm.EntityKind{ //nolint:gochecknoglobals // never changed
	reflect.TypeFor[Queue](): fsm.QueueEntity, reflect.TypeFor[Topic](): fsm.TopicEntity, reflect.TypeFor[Subscription](): fsm.SubscriptionEntity,
}

// properties returns the keys of a mapping that a struct holds, in the order of its fields. Those of entities have the settings of
// their kind alone.
func properties(t reflect.Type) (list []property) {
	kind, hasSettings := kinds[t]
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || f.Type == reflect.TypeFor[*time.Time]() { // a member sets times
			continue
		}
		p := property{name: name, index: f.Index, of: f.Type, required: options == "" || name == "name"}
		if hasSettings && len(f.Index) > 1 {
			table := entity.Table()
			at := slices.IndexFunc(table, func(s entity.Setting) bool { return s.Name == name && s.Has(kind) })
			if at < 0 {
				continue
			}
			p.setting = &table[at]
		}
		list = append(list, p)
	}
	return list
}
