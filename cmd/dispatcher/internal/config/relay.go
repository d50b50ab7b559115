package config

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// ofRelay reports whether a process that only reads outbox tables needs a setting.
func ofRelay(s setting) bool {
	return s.group == "Relay" || s.group == "Logs" || s.key == opsListen || s.key == "pprof"
}

// RelayFlags returns the flags of the settings that a process needs that only reads outbox tables.
func RelayFlags() Flags { return flagsOf(ofRelay) }

// LoadRelay is Load for a process that only reads outbox tables. The values of other settings are not
// checked, so that it can have the file of a server.
func LoadRelay(c *console.Console, flags *Flags) (*loaded, error) {
	l, problems := readSettings(c, flags)
	all := catalogue()
	problems = slices.DeleteFunc(problems, func(p problem) bool {
		i := slices.IndexFunc(all, func(s setting) bool { return s.key == p.key })
		return i >= 0 && !ofRelay(all[i])
	})
	check := &checker{Settings: &l.Settings}
	if err := CheckAddress(l.OpsListen); err != nil {
		check.refuse(opsListen, "%s", err)
	}
	check.logs()
	check.relay()
	if l.Relay == "" {
		check.refuse("relay", "is empty; name at least one outbox table")
	}
	return l, l.usageError(problems, check.problems)
}
