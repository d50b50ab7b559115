package config

import (
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// EmbeddedIn are the settings of a server that a command starts for itself: everything embedded in the directory,
// free ports, and the guard opened for this machine, where the command's receiver is. What the environment says about
// settings is about other servers and does not count here.
func EmbeddedIn(dir string) (*Settings, error) {
	l, err := LoadArgs(&console.Console{}, "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir="+dir,
		"--egress-allow=127.0.0.1/32", "--drain-timeout=2s", "--log-level=warn")
	if err != nil {
		return nil, err
	}
	return &l.Settings, nil
}
