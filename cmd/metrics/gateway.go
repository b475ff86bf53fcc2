package metrics

import (
	"maps"
	"slices"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/fsm"
)

// gateway makes a family with one sample, where there is a gateway.
func gateway(name string, k kind, help string, read func(*amqp.Stats) uint64) family {
	return family{name: name, kind: k, help: help, read: func(p *statsSnapshot, to emit) {
		if p.hasGateway {
			to(float64(read(&p.gateway)))
		}
	}}
}

func gatewayFamilies() []family {
	return []family{
		gateway("peeklock_amqp_connections", gauge, "Connections of clients that are open.",
			func(s *amqp.Stats) uint64 { return uint64(s.Connections) }),
		{
			name: "peeklock_amqp_connections_max", kind: gauge,
			help: "Connections of clients that are taken at a time; more are closed at once.",
			read: func(p *statsSnapshot, to emit) {
				if p.hasGateway && p.connectionsMax > 0 {
					to(float64(p.connectionsMax))
				}
			},
		},
		gateway("peeklock_amqp_sessions", gauge, "AMQP sessions on these.",
			func(s *amqp.Stats) uint64 { return uint64(s.Sessions) }),
		gateway("peeklock_amqp_links", gauge, "Links on these, those to $cbs and $management included.",
			func(s *amqp.Stats) uint64 { return uint64(s.Links) }),
		gateway("peeklock_amqp_accepted_connections_total", counter, "Connections of clients that were taken.",
			func(s *amqp.Stats) uint64 { return s.Accepted }),
		gateway("peeklock_amqp_crowded_connections_total", counter, "Connections that were closed at once, because there are too many or too many from one address.",
			func(s *amqp.Stats) uint64 { return s.Rejected }),
		gateway("peeklock_amqp_received_bytes_total", counter, "Bytes from clients, as AMQP: without TLS and WebSocket around it.",
			func(s *amqp.Stats) uint64 { return s.BytesIn }),
		gateway("peeklock_amqp_sent_bytes_total", counter, "Bytes to clients, as AMQP.",
			func(s *amqp.Stats) uint64 { return s.BytesOut }),
		gateway("peeklock_amqp_received_messages_total", counter, "Messages of clients that were stored, those of batches one by one; in a transaction also before it is committed.",
			func(s *amqp.Stats) uint64 { return s.Received }),
		gateway("peeklock_amqp_delivered_messages_total", counter, "Messages sent to clients, each delivery counted.",
			func(s *amqp.Stats) uint64 { return s.Delivered }),
		gateway("peeklock_amqp_node_requests_total", counter, "Requests to $management and $cbs.",
			func(s *amqp.Stats) uint64 { return s.Requests }),
		{
			name: "peeklock_amqp_settled_messages_total", kind: counter, labels: []string{"verb"},
			help: "Messages that receivers settled, by what they said: complete, abandon, defer, dead_letter, release. In a transaction they are counted when it is committed.",
			read: func(p *statsSnapshot, to emit) {
				if !p.hasGateway {
					return
				}
				for verb, name := range map[fsm.Verb]string{
					fsm.Complete: "complete", fsm.Abandon: "abandon", fsm.Defer: "defer", fsm.DeadLetter: "dead_letter", fsm.Release: "release",
				} {
					to(float64(p.gateway.Settled[verb]), name)
				}
			},
		},
		{
			name: "peeklock_amqp_refusals_total", kind: counter, labels: []string{"condition"},
			help: "Transfers, settlements, links, requests, sessions and connections that were refused or ended by the member, by the AMQP condition that the client was told.",
			read: func(p *statsSnapshot, to emit) {
				for _, condition := range slices.Sorted(maps.Keys(p.gateway.Refused)) {
					to(float64(p.gateway.Refused[condition]), string(condition))
				}
			},
		},
		gateway("peeklock_amqp_refused_presettled_deliveries_total", counter, "Deliveries that were refused although their sender had settled them: it does not know. Messages lost by the sender's choice.",
			func(s *amqp.Stats) uint64 { return s.Presettled }),
		gateway("peeklock_amqp_refused_logins_total", counter, "Logins that were refused: by SASL, and tokens put to $cbs.",
			func(s *amqp.Stats) uint64 { return s.Logins }),
	}
}

// gatewayMemoryFamilies are about what connections hold.
func gatewayMemoryFamilies() []family {
	return []family{
		gateway("peeklock_amqp_memory_bytes", gauge, "Memory of client connections: what is not yet stored, settled or sent, and their fixed costs, rounded up.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Used) }),
		gateway("peeklock_amqp_memory_max_bytes", gauge, "Limit of peeklock_amqp_memory_bytes. From 70 percent on, connections that hold more than their fair share are restricted.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Limit) }),
		gateway("peeklock_amqp_memory_unauthenticated_bytes", gauge, "The part of peeklock_amqp_memory_bytes that unauthenticated connections hold.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Unauthenticated) }),
		gateway("peeklock_amqp_memory_restricted_connections", gauge, "Connections that are restricted because they hold more than their fair share while memory is short: they get no credit, their sends are refused, or they are closed.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Restricted) }),
		gateway("peeklock_amqp_memory_refused_messages_total", counter, "Messages that were refused with server-busy because their connection was restricted.",
			func(s *amqp.Stats) uint64 { return s.MemoryRefused }),
		gateway("peeklock_amqp_memory_ended_connections_total", counter, "Connections that were closed because they held the most while memory was nearly used up.",
			func(s *amqp.Stats) uint64 { return s.Memory.Evictions }),
	}
}
