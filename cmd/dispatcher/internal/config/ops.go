package config

import (
	"errors"
	"net"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// opsListen is the key of the only setting that OpsAddress needs.
const opsListen = "ops_listen"

// OpsFlags returns the flags of the setting ops_listen.
func OpsFlags() Flags { return flagsOf(func(s setting) bool { return s.key == opsListen }) }

// OpsAddress returns the address at which this machine reaches the ops listener of a server with the same
// settings. Other settings may be missing or wrong: a container may have none of the server's keys.
func OpsAddress(c *console.Console, flags *Flags) (string, error) {
	l, problems := readSettings(c, flags)
	problems = slices.DeleteFunc(problems, func(p problem) bool { return p.key != opsListen })
	if l.origins[opsListen] == defaultOrigin {
		if values, found := readSettingsFile(c, flags); values == nil {
			problems = append(problems, found...) // the file cannot be read, and may have the setting
		}
	}
	if err := CheckAddress(l.OpsListen); err != nil {
		problems = append(problems, problem{key: opsListen, message: err.Error()})
	}
	if err := l.usageError(problems, nil); err != nil {
		return "", errors.New(err.Error()) // no usage error, which has another exit code
	}
	host, port, err := net.SplitHostPort(l.OpsListen)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", errors.New("ops_listen has port 0, so its real port is unknown; give --url")
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}
