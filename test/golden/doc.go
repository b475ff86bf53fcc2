// Package golden compares the JSON that a package stores or sends with golden files, so that no
// change of the code changes a format by accident.
//
// The golden files name formats, not Go types, and the values in them do not depend on the names
// of Go fields: a golden file that changes when a field is renamed shows that the format changed.
package golden
