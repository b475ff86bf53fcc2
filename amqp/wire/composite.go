package wire

// composite is a composite value (part 1, 1.4) that a table describes: pointers to its fields in the order of the
// standard. The type of a pointer determines how the field is read and written; a pointer to a pointer is a field
// that may be null. The wrapper types below express what a type cannot. appendTable and into follow the table.
//
// Flow, transfer and disposition, which make up the traffic of a connection, have no table, because encoding by a
// table takes two to three times as long. The sections of a message have none either, because a table is allocated.
type composite interface {
	descriptor() uint64
	table() []any
}

type (
	// mandatory is a field that must not be null.
	mandatory struct {
		name  string
		field any // *uint8, *uint32, *uint64, *string, *Symbol
	}
	// filled is a binary or an array of symbols that is written even when empty; other empty ones are written
	// as null.
	filled struct{ field any }
	// either is a field that holds a target or a coordinator.
	either struct {
		target      **Target
		coordinator **Coordinator
	}
)

func (p *Open) table() []any {
	return []any{ // the container-id is mandatory, but the broker accepts messages without it because it does not use it
		&p.ContainerID, &p.Hostname, &p.MaxFrameSize, &p.ChannelMax, &p.IdleTimeOut, &p.OutgoingLocales, &p.IncomingLocales,
		&p.OfferedCapabilities, &p.DesiredCapabilities, &p.Properties,
	}
}

func (p *Begin) table() []any {
	return []any{
		&p.RemoteChannel,
		mandatory{"next-outgoing-id", &p.NextOutgoingID},
		mandatory{"incoming-window", &p.IncomingWindow},
		mandatory{"outgoing-window", &p.OutgoingWindow},
		&p.HandleMax, &p.OfferedCapabilities, &p.DesiredCapabilities, &p.Properties,
	}
}

func (p *Attach) table() []any {
	return []any{
		mandatory{"name", &p.Name},
		mandatory{"handle", &p.Handle},
		&p.Role, &p.SndSettleMode, &p.RcvSettleMode, &p.Source,
		either{&p.Target, &p.Coordinator},
		&p.Unsettled, &p.IncompleteUnsettled, &p.InitialDeliveryCount, &p.MaxMessageSize,
		&p.OfferedCapabilities, &p.DesiredCapabilities, &p.Properties,
	}
}

func (s *Source) table() []any {
	return []any{
		&s.Address, &s.Durable, &s.ExpiryPolicy, &s.Timeout, &s.Dynamic, &s.DynamicNodeProperties, &s.DistributionMode, &s.Filter,
		&s.DefaultOutcome, &s.Outcomes, &s.Capabilities,
	}
}

func (t *Target) table() []any {
	return []any{&t.Address, &t.Durable, &t.ExpiryPolicy, &t.Timeout, &t.Dynamic, &t.DynamicNodeProperties, &t.Capabilities}
}

func (c *Coordinator) table() []any { return []any{&c.Capabilities} }

func (p *Detach) table() []any { return []any{mandatory{"handle", &p.Handle}, &p.Closed, &p.Error} }
func (p *End) table() []any    { return []any{&p.Error} }
func (p *Close) table() []any  { return []any{&p.Error} }

// All three fields are always written, because the Python SDK reads them by position (part 2, 2.8.14).
func (e *Error) table() []any { return []any{&e.Condition, &e.Description, &e.Info} }

func (s *Received) table() []any {
	return []any{mandatory{"section-number", &s.SectionNumber}, mandatory{"section-offset", &s.SectionOffset}}
}
func (*Accepted) table() []any   { return nil }
func (s *Rejected) table() []any { return []any{&s.Error} }
func (*Released) table() []any   { return nil }
func (s *Modified) table() []any {
	return []any{&s.DeliveryFailed, &s.UndeliverableHere, &s.MessageAnnotations}
}
func (s *Declared) table() []any           { return []any{filled{&s.TxnID}} }
func (s *TransactionalState) table() []any { return []any{filled{&s.TxnID}, &s.Outcome} }
func (c *Declare) table() []any            { return []any{&c.GlobalID} }
func (c *Discharge) table() []any          { return []any{filled{&c.TxnID}, &c.Fail} }

func (p *SASLMechanisms) table() []any { return []any{filled{&p.Mechanisms}} }
func (p *SASLInit) table() []any {
	return []any{mandatory{"mechanism", &p.Mechanism}, &p.InitialResponse, &p.Hostname}
}
func (p *SASLChallenge) table() []any { return []any{filled{&p.Challenge}} }
func (p *SASLResponse) table() []any  { return []any{filled{&p.Response}} }
func (p *SASLOutcome) table() []any   { return []any{mandatory{"code", &p.Code}, &p.AdditionalData} }

func (*Open) descriptor() uint64               { return descOpen }
func (*Begin) descriptor() uint64              { return descBegin }
func (*Attach) descriptor() uint64             { return descAttach }
func (*Flow) descriptor() uint64               { return descFlow }
func (*Transfer) descriptor() uint64           { return descTransfer }
func (*Disposition) descriptor() uint64        { return descDisposition }
func (*Detach) descriptor() uint64             { return descDetach }
func (*End) descriptor() uint64                { return descEnd }
func (*Close) descriptor() uint64              { return descClose }
func (*Error) descriptor() uint64              { return descError }
func (*Received) descriptor() uint64           { return descReceived }
func (*Accepted) descriptor() uint64           { return descAccepted }
func (*Rejected) descriptor() uint64           { return descRejected }
func (*Released) descriptor() uint64           { return descReleased }
func (*Modified) descriptor() uint64           { return descModified }
func (*Source) descriptor() uint64             { return descSource }
func (*Target) descriptor() uint64             { return descTarget }
func (*Coordinator) descriptor() uint64        { return descCoordinator }
func (*Declare) descriptor() uint64            { return descDeclare }
func (*Discharge) descriptor() uint64          { return descDischarge }
func (*Declared) descriptor() uint64           { return descDeclared }
func (*TransactionalState) descriptor() uint64 { return descTransactional }
func (*SASLMechanisms) descriptor() uint64     { return descSASLMechanisms }
func (*SASLInit) descriptor() uint64           { return descSASLInit }
func (*SASLChallenge) descriptor() uint64      { return descSASLChallenge }
func (*SASLResponse) descriptor() uint64       { return descSASLResponse }
func (*SASLOutcome) descriptor() uint64        { return descSASLOutcome }
