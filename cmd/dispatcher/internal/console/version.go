package console

import (
	"runtime/debug"
)

// programVersion returns the version for people, the User-Agent and the metrics: the linker's, else the module's, else
// the revision that was built, else "dev".
func programVersion(linked string) string {
	if linked != "" && linked != "dev" {
		return linked
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
