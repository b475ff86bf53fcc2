// Package config holds the settings of a member: one table ([Table]) with the name, type, default and help of each, from
// which flags, environment variables, the configuration file, config print and docs/configuration.md are made.
//
// Package main (serve, config print) is its caller. It turns settings into values of other packages (keys, certificates,
// networks) and checks them, but opens no listener and starts nothing.
//
// Invariants:
//
//   - Precedence: flags over environment over file over defaults. Each layer is loaded on its own, so that the origin of
//     a value is known. Unknown names are errors in every layer.
//   - Every error is a mistake of the user and says what to do.
//   - No secret is in an error or in [Settings.List].
package config
