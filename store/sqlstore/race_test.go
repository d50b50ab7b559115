//go:build race

package sqlstore

// underRace is true if the race detector is on. It finds something only in tests with several goroutines.
const underRace = true
