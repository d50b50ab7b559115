//go:build !race

package sqlstore

const underRace = false
