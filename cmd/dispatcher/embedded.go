package main

import "time"

// embeddedSettings are the settings of a server that a command starts for itself: everything embedded in the directory,
// free ports, and the guard opened for this machine, where the command's receiver is. What the environment says about
// settings is about other servers and does not count here.
func embeddedSettings(dir string) *Settings {
	none := &console{}
	l, _ := loadSettings(none, &settingFlags{}) // defaults are never wrong: a test holds them to it
	s := l.Settings
	s.Listen, s.OpsListen = "127.0.0.1:0", "127.0.0.1:0"
	s.DataDir = dir
	s.EgressAllow = []string{"127.0.0.1/32"}
	s.DrainTimeout = 2 * time.Second
	s.LogLevel = "warn"
	return &s
}
