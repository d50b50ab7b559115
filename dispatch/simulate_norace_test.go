//go:build !race

package dispatch_test

// underRace: the race detector is off.
const underRace = false
