package wire

import "fmt"

// listFields opens the list of a performative that nothing may follow.
func (d *decoder) listFields(b []byte) (fields, error) {
	f, rest, err := d.fields(b, depthMax)
	if err == nil && len(rest) != 0 {
		err = errTrailing
	}
	return f, err
}

// otherPerformative decodes the performatives that are not the traffic itself. b is the list behind
// the descriptor; the result keeps parts of it.
func (d *decoder) otherPerformative(desc uint64, b []byte) (Performative, error) {
	f, err := d.listFields(b)
	if err != nil {
		return nil, err
	}
	var p Performative
	switch desc {
	case descOpen:
		p = f.open()
	case descBegin:
		p = f.begin()
	case descAttach:
		p = f.attach()
	case descDetach:
		p = &Detach{Handle: f.mustUint32("handle"), Closed: f.bool(), Error: f.error()}
	case descEnd:
		p = &End{Error: f.error()}
	case descClose:
		p = &Close{Error: f.error()}
	case descSASLMechanisms:
		p = &SASLMechanisms{Mechanisms: f.multiple()}
	case descSASLInit:
		p = &SASLInit{Mechanism: Symbol(f.mustString("mechanism")), InitialResponse: f.binary(), Hostname: f.string()}
	case descSASLChallenge:
		p = &SASLChallenge{Challenge: f.binary()}
	case descSASLResponse:
		p = &SASLResponse{Response: f.binary()}
	case descSASLOutcome:
		code := f.uint8()
		if code == nil {
			return nil, fmt.Errorf("code is mandatory")
		}
		p = &SASLOutcome{Code: *code, AdditionalData: f.binary()}
	default:
		return nil, fmt.Errorf("not a performative")
	}
	return p, f.end()
}

// open reads the fields of open. A missing container-id reads as "": it means nothing
// to a broker.
func (f *fields) open() *Open {
	container, _ := f.text()
	return &Open{
		ContainerID:         string(container),
		Hostname:            f.string(),
		MaxFrameSize:        f.uint32(),
		ChannelMax:          f.uint16(),
		IdleTimeOut:         f.uint32(),
		OutgoingLocales:     f.multiple(),
		IncomingLocales:     f.multiple(),
		OfferedCapabilities: f.multiple(),
		DesiredCapabilities: f.multiple(),
		Properties:          f.mapping(),
	}
}

func (f *fields) begin() *Begin {
	return &Begin{
		RemoteChannel:       f.uint16(),
		NextOutgoingID:      f.mustUint32("next-outgoing-id"),
		IncomingWindow:      f.mustUint32("incoming-window"),
		OutgoingWindow:      f.mustUint32("outgoing-window"),
		HandleMax:           f.uint32(),
		OfferedCapabilities: f.multiple(),
		DesiredCapabilities: f.multiple(),
		Properties:          f.mapping(),
	}
}

func (f *fields) attach() *Attach {
	a := &Attach{
		Name:          f.mustString("name"),
		Handle:        f.mustUint32("handle"),
		Role:          f.role(),
		SndSettleMode: f.uint8(),
		RcvSettleMode: f.uint8(),
		Source:        f.source(),
	}
	a.Target, a.Coordinator = f.target()
	a.Unsettled = f.value()
	a.IncompleteUnsettled = f.bool()
	a.InitialDeliveryCount = f.uint32()
	a.MaxMessageSize = f.uint64()
	a.OfferedCapabilities = f.multiple()
	a.DesiredCapabilities = f.multiple()
	a.Properties = f.mapping()
	return a
}

// source reads a source field; null gives nil.
func (f *fields) source() *Source {
	desc, in := f.composite()
	if desc == descUnknown {
		return nil
	}
	if desc != descSource {
		f.fail(fmt.Errorf("source expected, got descriptor 0x%02x", desc))
		return nil
	}
	s := &Source{
		Address:               in.value(),
		Durable:               in.uint32(),
		ExpiryPolicy:          in.symbol(),
		Timeout:               in.uint32(),
		Dynamic:               in.bool(),
		DynamicNodeProperties: in.mapping(),
		DistributionMode:      in.symbol(),
		Filter:                in.mapping(),
		DefaultOutcome:        in.value(),
		Outcomes:              in.multiple(),
		Capabilities:          in.multiple(),
	}
	if err := in.end(); err != nil {
		f.fail(fmt.Errorf("source: %w", err))
	}
	return s
}

// target reads a target field, which may be a coordinator; null gives nil twice.
func (f *fields) target() (*Target, *Coordinator) {
	desc, in := f.composite()
	var t *Target
	var c *Coordinator
	switch desc {
	case descUnknown:
		return nil, nil
	case descCoordinator:
		c = &Coordinator{Capabilities: in.multiple()}
	case descTarget:
		t = &Target{
			Address:               in.value(),
			Durable:               in.uint32(),
			ExpiryPolicy:          in.symbol(),
			Timeout:               in.uint32(),
			Dynamic:               in.bool(),
			DynamicNodeProperties: in.mapping(),
			Capabilities:          in.multiple(),
		}
	default:
		f.fail(fmt.Errorf("target expected, got descriptor 0x%02x", desc))
		return nil, nil
	}
	if err := in.end(); err != nil {
		f.fail(fmt.Errorf("target: %w", err))
	}
	return t, c
}
