package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin/auth"
)

// loginDefaults adds the settings that bound failed logins.
func loginDefaults(to map[string]any) {
	limits := auth.DefaultLimits()
	to["login_failures"], to["login_failures_per_minute"] = limits.FailuresMax, limits.FailuresPerMinute
	to["login_delay"], to["login_verifications"] = limits.DelayMax.String(), limits.VerificationsMax
}

// loginFlags are those about failed logins.
func loginFlags(f *pflag.FlagSet) {
	f.Int("login-failures", 0, "failed logins of one address, or one /64 of IPv6, with one key name before further ones are answered as too many (HTTP 429, AMQP server-busy); a valid key is never refused (default 20)")
	f.Int("login-failures-per-minute", 0, "how many of these failures are forgotten in a minute (default 60)")
	f.String("login-delay", "", "longest delay of the answer to a failed login, up to 5s; 0: no delay (default 3s)")
	f.Int("login-verifications", 0, "how many credentials of one address are verified at a time; others wait (default 8)")
}

// loginLimits are these settings.
func (s *settings) loginLimits() (*auth.Limits, error) {
	delay, err := time.ParseDuration(s.LoginDelay)
	if err != nil {
		return nil, usagef("login_delay: a length of time like 500ms or 3s, or 0, not %q", s.LoginDelay)
	}
	limits := &auth.Limits{FailuresMax: s.LoginFailures, FailuresPerMinute: s.LoginFailuresPerMinute, DelayMax: delay, VerificationsMax: s.LoginVerifications}
	if err := limits.Validate(); err != nil {
		return nil, usagef("login settings: %w", err)
	}
	return limits, nil
}

// validateLogin refuses what auth would.
func (s *settings) validateLogin() error {
	_, err := s.loginLimits()
	return err
}
