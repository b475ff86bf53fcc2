// Package declare compares the entities of a namespace with a file that declares them, and makes them equal: the commands
// apply, diff and export. It reads and changes entities through the control API alone.
//
//	command.go   the commands
//	document.go  the types of a declaration
//	shape.go     their keys; decode.go reads them from YAML, schema.go describes them
//	read.go      recognizes a file: YAML, Config.json of the emulator, ARM template (package arm)
//	service.go   the same from the administration API of the cloud service
//	state.go     what the namespace has; plan.go the changes to make
//	secret.go    connection strings for Kubernetes
//
// The package has no state and starts no goroutines.
package declare
