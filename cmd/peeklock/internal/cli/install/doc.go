// Package install writes the files with which the machines of a new cluster start: peeklock init cluster.
//
//	authority.go  authorities and the certificates that they sign
//	command.go    the command and what it prints
//	files.go      the folders of the members: configuration, keys, certificates
//
// It needs no running member. Nothing that it finds in its folder is replaced, except certificates of members, which a
// second run renews.
package install
