package metrics

import "github.com/peeklock/peeklock/cluster/quota"

// otherNamespaces is the label of all namespaces together that are not shown by name. No namespace can have this name.
const otherNamespaces = "(others)"

// limitedResource is a resource with a limit in the settings of a namespace.
type limitedResource struct {
	name       string
	used, most uint64
}

func limitedResources(n *quota.NamespaceStats) [4]limitedResource {
	return [...]limitedResource{
		{"queues_and_topics", uint64(n.QueuesAndTopics), uint64(n.Limits.EntitiesMax)},
		{"messages", n.Led.Messages, n.Limits.MessagesMax},
		{"rules", n.Led.Rules, n.Limits.RulesMax},
		{"bytes", n.Led.DiskBytes, n.Limits.BytesMax},
	}
}

// perNamespace returns a family with the samples that read sends for each namespace that is shown, and for the others
// together. In Kubernetes, the label namespace is that of the scraped pod, so this one has another name.
func perNamespace(name, help string, read func(n *quota.NamespaceStats, to func(value float64, resource string))) family {
	return family{name: name, kind: gauge, labels: []string{"sb_namespace", "resource"}, entityNames: true, help: help, read: func(p *statsSnapshot, to emit) {
		for i := range p.node.Namespaces.Namespaces {
			n := &p.node.Namespaces.Namespaces[i]
			label := n.Name
			if label == "" {
				label = otherNamespaces
			}
			read(n, func(value float64, resource string) { to(value, label, resource) })
		}
	}}
}

func namespaceFamilies() []family {
	return []family{
		perNamespace("peeklock_namespace_used", "What a namespace uses of the resources that its settings can limit: queues_and_topics, messages, rules, bytes (on disk). The sum over all members is the whole: each reports the partitions that it leads.",
			func(n *quota.NamespaceStats, to func(float64, string)) {
				for _, r := range limitedResources(n) {
					to(float64(r.used), r.name)
				}
			}),
		perNamespace("peeklock_namespace_limit", "Limit of a namespace for a resource, in the unit of peeklock_namespace_used. Only the leader of the catalog reports it, without resources that are not limited.",
			func(n *quota.NamespaceStats, to func(float64, string)) {
				for _, r := range limitedResources(n) {
					if r.most > 0 {
						to(float64(r.most), r.name)
					}
				}
			}),
		perNamespace("peeklock_namespace_held_bytes", "Bytes that a namespace holds of the memory (estimated) and the disk of this member, in all replicas here.",
			func(n *quota.NamespaceStats, to func(float64, string)) {
				to(float64(n.MemoryBytes), string(quota.Memory))
				to(float64(n.DiskBytes), string(quota.Disk))
			}),
		{
			name: "peeklock_namespace_share_bytes", kind: gauge, labels: []string{"resource"},
			help: "Bytes that each namespace may hold of the memory and the disk of this member before it is refused growth; absent while that is not limited.",
			read: func(p *statsSnapshot, to emit) {
				if share := p.node.Namespaces.MemoryShare; share > 0 {
					to(float64(share), string(quota.Memory))
				}
				if share := p.node.Namespaces.DiskShare; share > 0 {
					to(float64(share), string(quota.Disk))
				}
			},
		},
		sample("peeklock_namespace_omitted", gauge, "Namespaces that are summed up as (others) instead of shown by name: 900 are shown, those with limits first, then the oldest.",
			func(p *statsSnapshot) float64 { return float64(p.node.Namespaces.Omitted) }),
	}
}
