//go:build race

package sqlstore

// underRace: the race detector is on. It finds something only where a test has several goroutines.
const underRace = true
