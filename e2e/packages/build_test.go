package packages

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// The versions of the packages, as docs/guide/install.md names them.
const (
	firstVersion  = "0.1.0"
	secondVersion = "0.2.0"
)

// addition is what the settings file of the second version has in addition.
const addition = "# A setting of the second version.\n"

func TestMain(m *testing.M) { harness.Main(m) }

// built are the directories of the packages by version.
var built sync.Map

// packagesOf builds the deb and the rpm of a version once, and returns their directory.
func packagesOf(tb testing.TB, version string) string {
	tb.Helper()
	once, _ := built.LoadOrStore(version, sync.OnceValue(func() string {
		dir := filepath.Join(harness.WorkDir, "packages-"+version)
		binary := filepath.Join(dir, "dispatcher")
		run(tb, "env", "CGO_ENABLED=0", "go", "build", "-pgo=off", "-buildvcs=false",
			"-tags", "nomsgpack", "-ldflags", "-s -w -X main.version=v"+version,
			"-o", binary, "github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher")
		run(tb, "../../tools/packages.sh", binary, "v"+version, dir)
		return dir
	}))
	return once.(func() string)()
}

// deb returns the path of a version's deb.
func deb(tb testing.TB, version string) string {
	tb.Helper()
	return filepath.Join(packagesOf(tb, version), debName(version))
}

func debName(version string) string { return "dispatcher_" + version + "_" + runtime.GOARCH + ".deb" }

// withOtherSettings writes a deb again with a longer settings file, to the path to.
func withOtherSettings(tb testing.TB, from, to string) {
	tb.Helper()
	dir := tb.TempDir()
	run(tb, "dpkg-deb", "-R", from, dir)
	f, err := os.OpenFile(filepath.Join(dir, "etc/dispatcher/dispatcher.env"), os.O_WRONLY|os.O_APPEND, 0)
	harness.Check(tb, err)
	_, err = f.WriteString(addition)
	harness.Check(tb, err)
	harness.Check(tb, f.Close())
	run(tb, "dpkg-deb", "-Zgzip", "-z1", "-b", dir, to)
}

// unpacked returns the directory of an unpacked deb.
func unpacked(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	run(tb, "dpkg-deb", "-x", deb(tb, firstVersion), dir)
	return dir
}
