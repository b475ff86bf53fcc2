package main

import (
	"strings"
	"testing"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
)

func TestInvalidLoginSettingsAreRefused(t *testing.T) {
	t.Parallel()
	config, err := settingsOf(t, "--key-file", written(t, auth.DevKey)).keys()
	if err != nil || *config.Limits != auth.DefaultLimits() {
		t.Errorf("by default: %+v, %v", config.Limits, err)
	}
	config, err = settingsOf(t, "--key-file", written(t, auth.DevKey), "--login-failures", "5", "--login-failures-per-minute", "10", "--login-delay", "0", "--login-verifications", "2").keys()
	if want := (auth.Limits{FailuresMax: 5, FailuresPerMinute: 10, VerificationsMax: 2}); err != nil || *config.Limits != want {
		t.Errorf("%+v, %v", config.Limits, err)
	}
	for flag, value := range map[string]string{"--login-failures": "0", "--login-failures-per-minute": "-1", "--login-delay": "6s", "--login-verifications": "0"} {
		if err := settingsOf(t, flag, value).validate(); err == nil || !strings.Contains(err.Error(), "login") {
			t.Errorf("%s %s: %v", flag, value, err)
		}
	}
	if err := settingsOf(t, "--login-delay", "soon").validate(); err == nil || !strings.Contains(err.Error(), "login_delay: a length of time") {
		t.Error(err)
	}
	if limits, err := settingsOf(t, "--login-delay", "5s").loginLimits(); err != nil || limits.DelayMax != 5*time.Second {
		t.Errorf("%+v, %v", limits, err)
	}
}
