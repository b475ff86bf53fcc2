package metrics

import (
	"maps"
	"slices"

	"github.com/peeklock/peeklock/amqp"
	"github.com/peeklock/peeklock/fsm"
)

// gateway returns a family with one sample, which is missing without a gateway.
func gateway(name string, k kind, help string, read func(*amqp.Stats) uint64) family {
	return family{name: name, kind: k, help: help, read: func(p *statsSnapshot, to emit) {
		if p.hasGateway {
			to(float64(read(&p.gateway)))
		}
	}}
}

func gatewayFamilies() []family {
	return []family{
		gateway("peeklock_amqp_connections", gauge, "Open client connections.",
			func(s *amqp.Stats) uint64 { return uint64(s.Connections) }),
		{
			name: "peeklock_amqp_connections_max", kind: gauge,
			help: "Maximum number of client connections; further ones are closed immediately.",
			read: func(p *statsSnapshot, to emit) {
				if p.hasGateway && p.connectionsMax > 0 {
					to(float64(p.connectionsMax))
				}
			},
		},
		gateway("peeklock_amqp_sessions", gauge, "AMQP sessions of client connections.",
			func(s *amqp.Stats) uint64 { return uint64(s.Sessions) }),
		gateway("peeklock_amqp_links", gauge, "AMQP links of client connections, including those to $cbs and $management.",
			func(s *amqp.Stats) uint64 { return uint64(s.Links) }),
		gateway("peeklock_amqp_accepted_connections_total", counter, "Client connections that were accepted.",
			func(s *amqp.Stats) uint64 { return s.Accepted }),
		gateway("peeklock_amqp_crowded_connections_total", counter, "Client connections that were closed immediately because there were too many, in total or from one address.",
			func(s *amqp.Stats) uint64 { return s.Rejected }),
		gateway("peeklock_amqp_received_bytes_total", counter, "AMQP bytes received from clients, without the overhead of TLS and WebSocket.",
			func(s *amqp.Stats) uint64 { return s.BytesIn }),
		gateway("peeklock_amqp_sent_bytes_total", counter, "AMQP bytes sent to clients, without the overhead of TLS and WebSocket.",
			func(s *amqp.Stats) uint64 { return s.BytesOut }),
		gateway("peeklock_amqp_received_messages_total", counter, "Messages received from clients and stored. Messages of a batch count individually, messages of a transaction before its commit.",
			func(s *amqp.Stats) uint64 { return s.Received }),
		gateway("peeklock_amqp_delivered_messages_total", counter, "Deliveries of messages to clients.",
			func(s *amqp.Stats) uint64 { return s.Delivered }),
		gateway("peeklock_amqp_node_requests_total", counter, "Requests to $management and $cbs.",
			func(s *amqp.Stats) uint64 { return s.Requests }),
		{
			name: "peeklock_amqp_settled_messages_total", kind: counter, labels: []string{"verb"},
			help: "Messages that receivers settled, by outcome: complete, abandon, defer, dead_letter, release. In a transaction they count when it is committed.",
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
			help: "Transfers, settlements, links, requests, sessions and connections that the member refused or ended, by the AMQP condition sent to the client.",
			read: func(p *statsSnapshot, to emit) {
				for _, condition := range slices.Sorted(maps.Keys(p.gateway.Refused)) {
					to(float64(p.gateway.Refused[condition]), string(condition))
				}
			},
		},
		gateway("peeklock_amqp_refused_presettled_deliveries_total", counter, "Presettled deliveries that were refused. Their senders do not learn of it: the messages are lost.",
			func(s *amqp.Stats) uint64 { return s.Presettled }),
		gateway("peeklock_amqp_refused_logins_total", counter, "Refused logins: by SASL and by tokens sent to $cbs.",
			func(s *amqp.Stats) uint64 { return s.Logins }),
	}
}

// gatewayMemoryFamilies describe the memory that connections use.
func gatewayMemoryFamilies() []family {
	return []family{
		gateway("peeklock_amqp_memory_bytes", gauge, "Memory of client connections: data that is not yet stored, settled or sent, and their fixed costs, rounded up.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Used) }),
		gateway("peeklock_amqp_memory_max_bytes", gauge, "Limit of peeklock_amqp_memory_bytes. Above 70 percent of it, connections that use more than their fair share are restricted.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Limit) }),
		gateway("peeklock_amqp_memory_unauthenticated_bytes", gauge, "Part of peeklock_amqp_memory_bytes that belongs to unauthenticated connections.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Unauthenticated) }),
		gateway("peeklock_amqp_memory_restricted_connections", gauge, "Connections that are restricted because they use more than their fair share while memory is low: they get no credit, their sends are refused, or they are closed.",
			func(s *amqp.Stats) uint64 { return uint64(s.Memory.Restricted) }),
		gateway("peeklock_amqp_memory_refused_messages_total", counter, "Messages refused with server-busy because their connection was restricted.",
			func(s *amqp.Stats) uint64 { return s.MemoryRefused }),
		gateway("peeklock_amqp_memory_ended_connections_total", counter, "Connections that were closed because they used the most memory when it was nearly exhausted.",
			func(s *amqp.Stats) uint64 { return s.Memory.Evictions }),
	}
}
