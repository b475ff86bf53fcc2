package topology

import (
	"time"

	"github.com/peeklock/peeklock/fsm"
)

// Limits of lists of connections.
const (
	ConnectionsMax     = 500  // connections of one page
	ConnectionLinksMax = 32   // links of one connection that a page lists; Connection.LinkCount counts all
	LockHoldersMax     = 1000 // locks of one LockQuery
)

// ConnectionQuery selects connections of one member, or of all members.
type ConnectionQuery struct {
	Namespace fsm.NamespaceID `json:"namespace,omitempty"` // 0: those of every namespace
	After     uint64          `json:"after,omitempty"`     // connections of the member with higher numbers
	Max       int             `json:"max,omitempty"`       // 1 to ConnectionsMax
}

// ConnectionPage is a part of the connections, by member and age.
type ConnectionPage struct {
	Connections []Connection `json:"connections"`
	Next        string       `json:"next,omitempty"`        // the "after" of the next page; "": there are no more
	Unreachable []string     `json:"unreachable,omitempty"` // members that did not answer: their connections are missing
}

// Connection is an AMQP connection of a client.
type Connection struct {
	ID          string          `json:"id"`     // the name of the member, a hyphen and the number in hexadecimal digits
	Number      uint64          `json:"number"` // rises; a restarted member uses none of its former numbers again
	Member      string          `json:"member"` // name
	NamespaceID fsm.NamespaceID `json:"namespaceId"`
	Namespace   string          `json:"namespace,omitempty"` // set by the control API
	Since       time.Time       `json:"since"`
	LastRead    time.Time       `json:"lastRead"` // when the last bytes of the client arrived
	Remote      string          `json:"remote"`   // address of the client
	TLS         bool            `json:"tls"`
	// Keys are the names of the access rules, and the subjects of tokens and certificates, whose rights the connection has; at most 8. None: it
	// has not authenticated yet, or all its tokens have expired.
	Keys      []string `json:"keys,omitempty"`
	Container string   `json:"container,omitempty"` // container-id of open
	Product   string   `json:"product,omitempty"`   // client library, from the properties of open
	Version   string   `json:"version,omitempty"`   // of the library
	Sessions  int      `json:"sessions"`            // AMQP sessions, which are not sessions of queues
	// Received and Delivered are the messages from and to the client since it connected: those that were stored, or enlisted in a transaction,
	// and all deliveries. Two lists give the rates.
	Received  uint64 `json:"received"`
	Delivered uint64 `json:"delivered"`
	// MemoryBytes is what the connection holds of the memory of its member for connections, besides what every connection takes. Restricted is set while this memory is
	// short and the connection holds more than its fair share: it gets no more credit.
	MemoryBytes int64  `json:"memoryBytes"`
	Restricted  bool   `json:"restricted,omitempty"`
	LinkCount   int    `json:"linkCount"`
	Links       []Link `json:"links"` // at most ConnectionLinksMax
}

// Link is a link of a connection.
type Link struct {
	Name      string  `json:"name"`
	Entity    string  `json:"entity"` // the address that the client named, such as orders, orders/$DeadLetterQueue or $cbs
	Role      string  `json:"role"`   // of the client: sender or receiver
	Credit    uint32  `json:"credit"` // messages that may be sent on the link before more credit is granted
	Unsettled int     `json:"unsettled"`
	Session   *string `json:"session,omitempty"` // of the queue or subscription, that the link holds
}

// The roles of a Link.
const (
	Sender   = "sender"
	Receiver = "receiver"
)

// CloseConnection asks a member to close a connection.
type CloseConnection struct {
	Number    uint64          `json:"number"`
	Namespace fsm.NamespaceID `json:"namespace,omitempty"` // 0: any
}

// LockQuery asks which connections hold the locks of messages.
type LockQuery struct {
	Partition fsm.PartitionID      `json:"partition"`
	Entity    fsm.EntityID         `json:"entity"`
	Sub       fsm.SubQueue         `json:"sub"`
	Sequences []fsm.SequenceNumber `json:"sequences"` // at most LockHoldersMax
}

// LockHolder is a connection that holds the lock of a message.
type LockHolder struct {
	Sequence   fsm.SequenceNumber `json:"sequence"`
	Connection string             `json:"connection"` // id
}
