// Package golden compares the JSON that a package stores or sends with what it wrote before.
//
// The golden files name formats, not Go types, and the values in them do not depend on the names
// of fields: a change of a name in the code leaves them as they are, or it has changed a format.
package golden
