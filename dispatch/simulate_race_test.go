//go:build race

package dispatch_test

// underRace: the race detector is on, and everything takes ten times as long.
const underRace = true
