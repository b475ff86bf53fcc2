package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/peeklock/peeklock/admin/api"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// Decode decodes a JSON object; without a body value does not change. Unknown fields are refused: a
// misspelt one must not appear to work. possible names the fields for the error. Errors wrap fsm.InvalidArgument, fsm.MessageTooLarge
// or fsm.ServerBusy.
func Decode(r *http.Request, value any, possible string) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	if err == nil {
		_, err = decoder.Token()
		if err == nil {
			return fmt.Errorf("%w: the body holds more than one JSON value", fsm.InvalidArgument)
		}
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, fsm.ServerBusy): // there was no slot for the request
		return err
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: the body is longer than %d bytes", fsm.MessageTooLarge, tooLarge.Limit)
	}
	return fmt.Errorf("%w: the body: %s; possible are %s", fsm.InvalidArgument, strings.TrimPrefix(err.Error(), "json: "), possible)
}

// DecodeSettings decodes the settings of an entity. Errors are those of Decode.
func DecodeSettings(kind fsm.EntityKind, r *http.Request) (entity.Settings, error) {
	var settings entity.Settings
	return settings, Decode(r, &settings, entity.SettingNames(kind))
}

// DecodeCreation is DecodeSettings with the first rule of a new subscription, nil for the default one.
func DecodeCreation(kind fsm.EntityKind, r *http.Request) (entity.Settings, *fsm.Rule, error) {
	if kind != fsm.SubscriptionEntity {
		settings, err := DecodeSettings(kind, r)
		return settings, nil, err
	}
	var asked api.SubscriptionRequest
	if err := Decode(r, &asked, entity.SettingNames(kind)+" and defaultRule"); err != nil || asked.DefaultRule == nil {
		return asked.Settings, nil, err
	}
	if asked.DefaultRule.Name == "" {
		asked.DefaultRule.Name = fsm.DefaultRuleName
	}
	rule, err := asked.DefaultRule.Parse()
	return asked.Settings, &rule, err
}
