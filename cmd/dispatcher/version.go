package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (-X main.version=v1.2.3); empty or "dev": the build's own information is used.
var version string

// versionCommand shows what this program is.
type versionCommand struct{}

// Run prints one line.
func (*versionCommand) Run(c *console) error {
	_, err := fmt.Fprintf(c.out, "dispatcher %s %s %s/%s\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// programVersion returns the version for people, the User-Agent and the metrics: the linker's, else the module's, else
// the revision that was built, else "dev".
func programVersion() string {
	if version != "" && version != "dev" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	if len(revision) < 12 {
		return "dev"
	}
	return "dev-" + revision[:12] + modified
}
