package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/peeklock/peeklock/admin"
	"github.com/peeklock/peeklock/admin/entity"
	"github.com/peeklock/peeklock/fsm"
)

// entitySettings are the flags of create and update. A setting whose flag is not given
// stays nil and is left to the server.
type entitySettings struct {
	admin.Settings
	given struct {
		attempts, bytes, megabytes             uint32
		expire, failed, duplicates, sessions   bool
		partitioned                            bool
		status, metadata, forward, forwardDead string
	}
}

// durationFlag is a length of time on the command line: "30s", "PT30S" or "forever".
type durationFlag struct{ to **entity.Duration }

var _ pflag.Value = durationFlag{}

// Set parses what was given.
func (l durationFlag) Set(text string) error {
	d, err := entity.ParseDuration(text)
	if err == nil {
		*l.to = (*entity.Duration)(&d)
	}
	return err
}

// String is the value so far; there is no default, the server has one.
func (l durationFlag) String() string {
	if l.to == nil || *l.to == nil {
		return ""
	}
	return (*l.to).String()
}

// Type is what the help calls it.
func (l durationFlag) Type() string { return "duration" }

// flags are those that the kind of entity has.
func (s *entitySettings) flags(cmd *cobra.Command, c *client, kind fsm.EntityKind) {
	lengths := []durationOption{
		{"default-ttl", "how long messages live at most, and without a time to live of their own, or forever (server default)", &s.DefaultMessageTimeToLive},
		{"auto-delete-on-idle", "delete the " + kind.String() + " when it was not used for so long, 5m or more, or forever (server default)", &s.AutoDeleteOnIdle},
	}
	if kind != fsm.TopicEntity {
		lengths = append(lengths, s.deliveryFlags(cmd, c)...)
	}
	if kind != fsm.SubscriptionEntity {
		lengths = append(lengths, s.storageFlags(cmd, kind)...)
	}
	f := cmd.Flags()
	if kind == fsm.SubscriptionEntity {
		f.BoolVar(&s.given.failed, "dead-letter-on-filter-errors", true, "dead-letter messages for which a rule fails")
	}
	for _, length := range lengths {
		f.Var(durationFlag{length.to}, length.name, length.usage)
	}
	f.StringVar(&s.given.status, "status", "", "Active, Disabled, SendDisabled or ReceiveDisabled")
	f.StringVar(&s.given.metadata, "user-metadata", "", "text of your own, up to 1024 bytes")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(
		[]string{"Active", "Disabled", "SendDisabled", "ReceiveDisabled"}, cobra.ShellCompDirectiveNoFileComp))
}

type durationOption struct {
	name, usage string
	to          **entity.Duration
}

// deliveryFlags are about giving messages out: a topic does not.
func (s *entitySettings) deliveryFlags(cmd *cobra.Command, c *client) []durationOption {
	f := cmd.Flags()
	f.Uint32Var(&s.given.attempts, "max-delivery-count", 0, "attempts before a message is dead-lettered, 1 to 2000 (server default 10)")
	f.BoolVar(&s.given.expire, "dead-letter-on-expiry", false, "dead-letter messages that expire instead of dropping them")
	f.StringVar(&s.given.forward, "forward-to", "", "send all messages on to this queue or topic; '' ends it")
	f.StringVar(&s.given.forwardDead, "forward-dead-letters-to", "", "send all dead letters on to this queue or topic; '' ends it")
	destinations := func(cmd *cobra.Command, _ []string, part string) ([]string, cobra.ShellCompDirective) {
		return c.complete("queues", "topics")(cmd, nil, part)
	}
	_ = cmd.RegisterFlagCompletionFunc("forward-to", destinations)
	_ = cmd.RegisterFlagCompletionFunc("forward-dead-letters-to", destinations)
	return []durationOption{
		{"lock-duration", "how long a receiver holds a message, 5s to 5m (server default 30s)", &s.LockDuration},
		{"dead-letter-ttl", "how long dead letters are kept, 1s or more, or forever (server default)", &s.DeadLetterTimeToLive},
		{"retry-delay", "pause after a failed attempt, doubled after each, up to 7 days; 0s: none (server default)", &s.RetryDelay},
		{"retry-delay-max", "longest such pause (server default 10m)", &s.RetryDelayMax},
	}
}

// storageFlags are about taking messages: a subscription has them from its topic.
func (s *entitySettings) storageFlags(cmd *cobra.Command, kind fsm.EntityKind) []durationOption {
	f := cmd.Flags()
	f.Uint32Var(&s.given.bytes, "max-message-bytes", 0, "largest message accepted (server default 262144)")
	f.Uint32Var(&s.given.megabytes, "max-size-mb", 0, "how many MiB of messages the "+kind.String()+" holds, 1 to 81920 (server default 1024)")
	return []durationOption{
		{"duplicate-window", "how long message ids are remembered, 20s to 7 days (server default 10m)", &s.DuplicateDetectionHistoryTimeWindow},
	}
}

// creationFlags are those that only create has.
func (s *entitySettings) creationFlags(cmd *cobra.Command, kind fsm.EntityKind) {
	f := cmd.Flags()
	if kind != fsm.SubscriptionEntity {
		f.BoolVar(&s.given.duplicates, "duplicate-detection", false, "drop messages whose id came before; cannot be changed later")
		f.BoolVar(&s.given.partitioned, "partitioned", false, "spread the "+kind.String()+" over several partitions; cannot be changed later")
	}
	if kind != fsm.TopicEntity {
		f.BoolVar(&s.given.sessions, "requires-session", false, "give messages out by session; cannot be changed later")
	}
}

// body holds what was given on the command line and nothing else.
func (s *entitySettings) body(cmd *cobra.Command) admin.Settings {
	out := s.Settings
	given := cmd.Flags().Changed
	if given("max-delivery-count") {
		out.MaxDeliveryCount = &s.given.attempts
	}
	if given("max-message-bytes") {
		out.MaxMessageBytes = &s.given.bytes
	}
	if given("max-size-mb") {
		out.MaxSizeInMegabytes = &s.given.megabytes
	}
	if given("dead-letter-on-expiry") {
		out.DeadLetteringOnMessageExpiration = &s.given.expire
	}
	if given("duplicate-detection") {
		out.RequiresDuplicateDetection = &s.given.duplicates
	}
	if given("partitioned") {
		out.EnablePartitioning = &s.given.partitioned
	}
	if given("requires-session") {
		out.RequiresSession = &s.given.sessions
	}
	if given("dead-letter-on-filter-errors") {
		out.DeadLetteringOnFilterEvaluationExceptions = &s.given.failed
	}
	if given("forward-to") {
		out.ForwardTo = &s.given.forward
	}
	if given("forward-dead-letters-to") {
		out.ForwardDeadLetteredMessagesTo = &s.given.forwardDead
	}
	if given("status") {
		out.Status = &s.given.status
	}
	if given("user-metadata") {
		out.UserMetadata = &s.given.metadata
	}
	return out
}
