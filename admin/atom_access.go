package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// How the service writes access rules. The type and the claim are always these; ACS, which had
// others, is gone.
const (
	accessElement   = "AuthorizationRule"
	accessListName  = "AuthorizationRules"
	accessType      = "SharedAccessAuthorizationRule"
	accessClaimType = "SharedAccessKey"
	accessClaim     = "None"
)

// access reads the AuthorizationRules of a description; none are none.
func (n *element) access() ([]entity.AccessRuleRequest, error) {
	list := n.child(accessListName)
	if list == nil {
		return nil, nil
	}
	if n.name == "SubscriptionDescription" && len(list.children) > 0 {
		return nil, fmt.Errorf("%w: %s: a subscription has those of its topic", fsm.InvalidArgument, accessListName)
	}
	rules := make([]entity.AccessRuleRequest, 0, len(list.children))
	for i := range list.children {
		c := &list.children[i]
		if c.name != accessElement {
			return nil, fmt.Errorf("%w: %s holds %s, not %.60s", fsm.InvalidArgument, accessListName, accessElement, c.name)
		}
		if kind := c.kindName(); kind != "" && kind != accessType {
			return nil, fmt.Errorf("%w: %s of the type %.60q: there is only %s", fsm.NotImplemented, accessElement, kind, accessType)
		}
		rule := entity.AccessRuleRequest{Name: c.leafText("KeyName"), PrimaryKey: c.leafText("PrimaryKey"), SecondaryKey: c.leafText("SecondaryKey")}
		if rights := c.child("Rights"); rights != nil {
			for j := range rights.children {
				rule.Rights = append(rule.Rights, rights.children[j].text)
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// leafText is the text of a child, "" when it is not there.
func (n *element) leafText(name string) string {
	if c := n.child(name); c != nil {
		return strings.TrimSpace(c.text)
	}
	return ""
}

// replaceAccess makes the rules of an entity those of its description and answers with what it
// is then. The list is the whole of them: the Go client leaves an empty one out, so none given
// are none.
func (s *Server) replaceAccess(r *http.Request, kind fsm.EntityKind, name string, asked []entity.AccessRuleRequest) (fsm.Entity, error) {
	err := s.updateAccess(r, name, func(old []fsm.AccessRule) ([]fsm.AccessRule, error) { return entity.CompleteAccessRules(asked, old) })
	s.auditChange(r, auditedChange{operation: "update", kind: "access_rules", name: name}, err)
	if err != nil {
		return fsm.Entity{}, err
	}
	found, _, err := s.namespace(r).Entity(r.Context(), kind, name)
	return found, withEntityName(name, err)
}

// equalAccessRule passes the times over.
func equalAccessRule(a, b fsm.AccessRule) bool {
	return a.Name == b.Name && a.Primary == b.Primary && a.Secondary == b.Secondary && a.Rights == b.Rights
}

// accessRules writes them in the form that all clients read. The times are never the unset
// ones, which Go does not read here; a key that is not there is left out, since .NET refuses
// empty ones.
func (x *xmlWriter) accessRules(rules []fsm.AccessRule) {
	x.open(accessListName)
	for _, rule := range rules {
		x.open(accessElement, "i:type", accessType)
		x.leaf("ClaimType", accessClaimType)
		x.leaf("ClaimValue", accessClaim)
		x.open("Rights")
		for _, word := range entity.RightNames(rule.Rights) {
			x.leaf("AccessRights", word)
		}
		x.end("Rights")
		x.leaf("CreatedTime", toTime(rule.Created).Format(time.RFC3339Nano))
		x.leaf("ModifiedTime", toTime(rule.Updated).Format(time.RFC3339Nano))
		x.leaf("KeyName", rule.Name)
		x.leaf("PrimaryKey", rule.Primary)
		x.optional("SecondaryKey", rule.Secondary)
		x.end(accessElement)
	}
	x.end(accessListName)
}
