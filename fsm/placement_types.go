package fsm

// Member is the catalog's record of a process. Only members whose properties were set have one; for
// the others the zero value with their ID applies.
type Member struct {
	ID   MemberID `json:"ID"`
	Name string   `json:"Name"` // the name it last reported, for display; at most 64 bytes
	// Zone is its location, such as an availability zone: replicas of a partition are spread over
	// zones. "" is a zone too. At most 64 bytes.
	Zone string `json:"Zone"`
	// Weight is its share of replicas relative to other members, 1 to 100; 0 stands for 10.
	Weight uint32 `json:"Weight"`
	// Drained members lead no partitions and get no further replicas.
	Drained bool `json:"Drained"`
	// Removed members hold no replicas and never come back: their replicas were moved or given up.
	Removed bool `json:"Removed"`
}
