// Package declare compares the entities of a namespace with a file that declares them, and makes them equal: the commands
// apply, diff and export. It reads and changes entities through the control API alone. The file is YAML, or JSON, with the settings
// of the control API by their names there.
//
// The package has no state and starts no goroutines.
package declare
