// Package quantity has the types of flags and settings that are a number of bytes or a length of time. The command line, the
// configuration file and the environment use them, so that both are written in the same forms everywhere. The parsers are those
// of package entity, which the control API uses as well.
package quantity
