// Package upgrade makes the next release of peeklock from the working tree: a patch that adds a format level. The tests
// of rolling upgrades and of format levels build with it, because they need a binary of a higher level before there is
// one. It adds the field Mark to SendMessages, as a command of its own kind, and a section to the image of a message
// partition; a cluster at the next level writes both.
package upgrade
