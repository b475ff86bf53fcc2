package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// serviceError is an error in the words of the service, which clients and their tests compare.
type serviceError struct {
	code fsm.Code
	text string
}

func (e *serviceError) Error() string { return e.text }
func (e *serviceError) Unwrap() error { return e.code }

// refuseAccess returns the answer of the service to a caller that admit has refused. A caller with a valid credential but
// without the right to manage learns that a queue or topic does not exist; it learns nothing of subscriptions and rules.
func (s *serviceAPI) refuseAccess(r *http.Request, t atom.Target, refused error) error {
	if !errors.As(refused, new(*missingRightError)) || t.Resource == atom.NamespaceResource {
		return refused
	}
	if operation := subscriptionOperation(t, r.Method); operation != "" {
		return &serviceError{fsm.Unauthorized, fmt.Sprintf("401 SubCode=40100: Unauthorized : Unauthorized access for '%s' operation on endpoint 'sb://%s%s'",
			operation, r.Host, r.URL.RequestURI())}
	}
	switch r.Method {
	case http.MethodPut:
		return &serviceError{fsm.Unauthorized, "Authorization failed for specified action: Manage,EntityWrite"}
	case http.MethodDelete:
		return &serviceError{fsm.Unauthorized, "Authorization failed for specified action: Manage,EntityDelete"}
	case http.MethodGet:
		if t.Resource == atom.EntityResource {
			if _, _, err := s.atomFind(r, t); errors.Is(err, fsm.EntityNotFound) {
				return err
			}
		}
		return &serviceError{fsm.Unauthorized, "Manage,EntityRead claims required for this operation"}
	}
	return refused
}

// subscriptionOperation returns the name that the service gives to an operation on subscriptions or rules; "" for other
// requests.
func subscriptionOperation(t atom.Target, method string) string {
	var noun string
	list := false
	_, _, isPath := fsm.SplitSubscriptionPath(t.Name)
	switch {
	case t.Resource == atom.RulesResource && method == http.MethodGet:
		noun, list = "Rule", true
	case t.Resource == atom.RuleResource || t.Resource == atom.RulesResource:
		noun = "Rule"
	case t.Resource == atom.ListResource && t.Kind == fsm.SubscriptionEntity:
		noun, list = "Subscription", true
	case t.Resource == atom.EntityResource && isPath:
		noun = "Subscription"
	default:
		return ""
	}
	switch {
	case list:
		return "Enumerate" + noun + "s"
	case method == http.MethodGet:
		return "Get" + noun
	case method == http.MethodPut:
		return "CreateOrUpdate" + noun
	case method == http.MethodDelete:
		return "Delete" + noun
	}
	return ""
}

// premiumMessageBytes is the default of MaxMessageSizeInKilobytes in a Premium namespace, and the smallest value that a
// client may set there.
const premiumMessageBytes = 1024 * 1024

// checkMessageSize refuses values of MaxMessageSizeInKilobytes that the service refuses. own is the default of a new entity; a value
// that the entity has is not among the settings.
func checkMessageSize(o atom.Origin, namespace fsm.NamespaceSettings, asked entity.Settings, own uint32) error {
	const element = "MaxMessageSizeInKilobytes"
	size := asked.MaxMessageBytes
	if size == nil {
		return nil
	}
	limit := entity.LimitsOf(namespace).MessageBytes
	least := min(premiumMessageBytes, limit)
	switch {
	case !o.HasMessageSize():
		return &serviceError{fsm.InvalidArgument, fmt.Sprintf("%s is not supported in api-version %s", element, o.Version)}
	case *size == own:
	case atom.IsStandard(namespace):
		return &serviceError{fsm.InvalidArgument, fmt.Sprintf("Bad Request. To know more visit https://aka.ms/sbResourceMgrExceptions. %s %d: this property can only be set in a Premium namespace, "+
			"which is one whose maxMessageBytes is above %d", element, *size/1024, standardMessageBytes)}
	case *size < least || *size > limit:
		return &serviceError{fsm.InvalidArgument, fmt.Sprintf("The value for '%s' must be between %d and %d, not %d; maxMessageBytes of the namespace sets the upper limit",
			element, least/1024, limit/1024, *size/1024)}
	}
	return nil
}

// checkFixed refuses changes of settings that cannot change after creation.
func checkFixed(kind fsm.EntityKind, old, settings fsm.EntitySettings) error {
	table := entity.Table()
	for i := range table {
		if table[i].Fixed && table[i].Differs(&old, &settings) {
			format := "The value for the %[1]s property of an existing %[2]s cannot be changed"
			if table[i].Element == "EnablePartitioning" {
				format = "Partitioning cannot be changed for %[2]s"
			}
			return &serviceError{fsm.InvalidArgument, fmt.Sprintf(format, table[i].Element, atom.KindWord(kind))}
		}
	}
	return nil
}
