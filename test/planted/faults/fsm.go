package faults

// fsmFaults are the faults of package fsm and the packages below it.
func fsmFaults() []Fault {
	return []Fault{}
}
