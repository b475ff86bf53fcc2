package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/atom"
	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Headers in which administration clients send the token for a destination.
const (
	forwardTokenHeader           = "ServiceBusSupplementaryAuthorization"
	forwardDeadLetterTokenHeader = "ServiceBusDlqSupplementaryAuthorization" //nolint:gosec // no credential
)

// permitForwarding requires the right to send to the destinations of a description. They are checked whether they change
// or not, as the service does: clients send a token for each.
func (s *core) permitForwarding(r *http.Request, description *atom.Element) error {
	for _, f := range [...]struct{ element, header string }{
		{"ForwardTo", forwardTokenHeader}, {"ForwardDeadLetteredMessagesTo", forwardDeadLetterTokenHeader},
	} {
		sent, given := description.Text(f.element)
		if !given {
			continue
		}
		name, err := entity.ParseDestination(sent)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", fsm.InvalidArgument, f.element, err)
		}
		if err := s.permitDestination(r, f.element, f.header, name, sent == name); err != nil {
			return err
		}
	}
	return nil
}

// permitNewForwarding is permitForwarding of the control API. A destination that does not change needs no right, so that a
// key of one entity can change its other settings.
func (s *core) permitNewForwarding(r *http.Request, asked entity.Settings, old fsm.EntitySettings) error {
	for _, f := range [...]struct {
		setting, header string
		asked           *string
		old             string
	}{
		{"forwardTo", forwardTokenHeader, asked.ForwardTo, old.ForwardTo},
		{"forwardDeadLetteredMessagesTo", forwardDeadLetterTokenHeader, asked.ForwardDeadLetteredMessagesTo, old.ForwardDeadLettersTo},
	} {
		if f.asked == nil || fsm.PathKey(*f.asked) == fsm.PathKey(f.old) {
			continue
		}
		if err := s.permitDestination(r, f.setting, f.header, *f.asked, true); err != nil {
			return err
		}
	}
	return nil
}

// permitDestination requires the right to send to name: by the token in the header, or by that of the request itself. ""
// is no destination. A caller that needs no token needs none here. plain: the client wrote the name and no address.
func (s *core) permitDestination(r *http.Request, setting, header, name string, plain bool) error {
	if name == "" || contextOf(r).trusted {
		return nil
	}
	target := auth.TargetOf(fsm.PathKey(name))
	if plain && !strings.HasPrefix(strings.ToLower(name), strings.ToLower(hostOf(r))+"/") {
		target.Written = name // Go signs what the application wrote, without a host
	}
	may, err := s.maySend(r, []string{r.Header.Get(header), r.Header.Get("Authorization")}, target)
	if err == nil && !may {
		err = fmt.Errorf("%w: %s: no token with the right to send to '%.260s': sign the request for the whole namespace with a key of it, or send a token for the destination in the header %s", fsm.Unauthorized, setting, name, header)
	}
	return err
}

// maySend reports whether one of the tokens gives the right to send to a target. A token that names another resource is
// not tried. Errors wrap fsm.ServerBusy: the Authority accepts no further attempt.
func (s *core) maySend(r *http.Request, tokens []string, target auth.Target) (bool, error) {
	for _, given := range tokens {
		kind, token := parseAuthorization(given)
		if !auth.ClaimsTarget(kind, token, target) {
			continue
		}
		grant, err := s.authenticate(r, kind, token, []auth.Target{target})
		switch {
		case errors.Is(err, fsm.ServerBusy):
			return false, err
		case err == nil && grant.Rights&fsm.Send == fsm.Send && grant.OwnNamespace == (contextOf(r).keyNamespace != 0) &&
			(!grant.OwnNamespace || grant.Namespace == contextOf(r).namespace):
			return true, nil
		}
	}
	return false, nil
}
