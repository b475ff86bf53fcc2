package atom

import (
	"fmt"
	"strings"

	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// The form of access rules in the service. Type and claim are constant since ACS, which had others, was retired.
const (
	accessElement   = "AuthorizationRule"
	accessListName  = "AuthorizationRules"
	accessType      = "SharedAccessAuthorizationRule"
	accessClaimType = "SharedAccessKey"
	accessClaim     = "None"
)

// AccessRules reads the AuthorizationRules of a description. Without such a list there are none.
func (n *Element) AccessRules() ([]entity.AccessRuleRequest, error) {
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

// Text returns the text of a child, without the spaces around it; false when the child is omitted.
func (n *Element) Text(name string) (text string, given bool) {
	c := n.child(name)
	if c == nil {
		return "", false
	}
	return strings.TrimSpace(c.text), true
}

func (n *Element) leafText(name string) string {
	text, _ := n.Text(name)
	return text
}

// accessRules writes access rules in the form that all clients read. They have no times, as in the service; a missing key
// is omitted, since .NET refuses empty ones.
func (x *Document) accessRules(rules []fsm.AccessRule) {
	x.open(accessListName)
	for _, rule := range rules {
		words := entity.RightNames(rule.Rights &^ fsm.Read) // clients do not know Read
		if len(words) == 0 {
			continue
		}
		x.open(accessElement, "i:type", accessType)
		x.leaf("ClaimType", accessClaimType)
		x.leaf("ClaimValue", accessClaim)
		x.open("Rights")
		for _, word := range words {
			x.leaf("AccessRights", word)
		}
		x.end("Rights")
		x.leaf("KeyName", rule.Name)
		x.leaf("PrimaryKey", rule.Primary)
		x.optional("SecondaryKey", rule.Secondary)
		x.end(accessElement)
	}
	x.end(accessListName)
}
