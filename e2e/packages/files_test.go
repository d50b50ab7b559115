package packages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
)

// maxExposure is the limit of systemd-analyze security in tenths: 2.0, where 10.0 is the worst.
const maxExposure = "20"

// TestUnits checks the units of the deb, and the example of a drop-in, with systemd-analyze.
func TestUnits(t *testing.T) {
	dir := unpacked(t)
	units := filepath.Join(dir, "usr/lib/systemd/system")
	paths, err := filepath.Glob(units + "/dispatcher*")
	harness.Check(t, err)
	if len(paths) != 3 {
		t.Fatalf("units of the deb: %q", paths)
	}
	drop := filepath.Join(units, "dispatcher.service.d")
	harness.Check(t, os.Mkdir(drop, 0o755))
	run(t, "cp", filepath.Join(dir, "usr/share/doc/dispatcher/examples/credentials.conf"), drop)
	for _, path := range paths {
		// verify wants to see the program.
		text, err := os.ReadFile(path)
		harness.Check(t, err)
		text = []byte(strings.ReplaceAll(string(text), "=/usr/bin/", "="+dir+"/usr/bin/"))
		harness.Check(t, os.WriteFile(path, text, 0o644))
	}
	for _, path := range paths {
		if out := run(t, "systemd-analyze", "verify", path); out != "" {
			t.Errorf("systemd-analyze verify %s:\n%s", filepath.Base(path), out)
		}
		if filepath.Ext(path) != ".service" {
			continue
		}
		out := run(t, "systemd-analyze", "security", "--offline=true", "--threshold="+maxExposure, path)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		t.Log(lines[len(lines)-1])
	}
}

// TestUserAndDirectories runs systemd-sysusers and systemd-tmpfiles with the files of the deb. The roots of
// the other tests have neither.
func TestUserAndDirectories(t *testing.T) {
	dir := unpacked(t)
	root := t.TempDir()
	harness.Check(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	run(t, "systemd-sysusers", "--root="+root, filepath.Join(dir, "usr/lib/sysusers.d/dispatcher.conf"))
	user := regexp.MustCompile(`(?m)^dispatcher:x:(\d+):(\d+):.*:/var/lib/dispatcher:/usr/sbin/nologin$`).
		FindStringSubmatch(run(t, "cat", filepath.Join(root, "etc/passwd")))
	if user == nil {
		t.Fatal("systemd-sysusers has made no user dispatcher without a shell")
	}
	run(t, "systemd-tmpfiles", "--create", "--root="+root,
		filepath.Join(dir, "usr/lib/tmpfiles.d/dispatcher.conf"))
	for _, name := range []string{"lib", "backups"} {
		same(t, name, run(t, "stat", "-c", "%a %u %g", filepath.Join(root, "var", name, "dispatcher")),
			"700 "+user[1]+" "+user[2]+"\n")
	}
}

// monitoring matches a file of the alerts and the dashboard that a page names, or a pattern of files.
var monitoring = regexp.MustCompile(`\bdeploy/(?:prometheus|grafana)/[\w./*-]*\w`)

// TestPagesOfThePackage checks that each relative link of the installed pages leads to an installed file, and
// that the package has the files for Prometheus and Grafana which the pages name.
func TestPagesOfThePackage(t *testing.T) {
	share := filepath.Join(unpacked(t), "usr/share")
	// LICENSE is a link to a file that each Debian system has.
	harness.Check(t, os.Mkdir(filepath.Join(share, "common-licenses"), 0o755))
	harness.Check(t, os.WriteFile(filepath.Join(share, "common-licenses/Apache-2.0"), nil, 0o644))
	doc := os.DirFS(filepath.Join(share, "doc/dispatcher"))
	pages, files := 0, 0
	harness.Check(t, fs.WalkDir(doc, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		text, err := fs.ReadFile(doc, name)
		harness.Check(t, err)
		pages++
		for _, link := range docpage.BrokenLinks(doc, name, string(text)) {
			t.Errorf("%s: the link %s leads to no installed file", name, link)
		}
		for _, named := range monitoring.FindAllString(string(text), -1) {
			files++
			if found, err := fs.Glob(doc, named); err != nil || len(found) == 0 {
				t.Errorf("%s: %s is not installed (%v)", name, named, err)
			}
		}
		return nil
	}))
	if pages < 10 || files < 5 {
		t.Errorf("the package has %d pages, which name %d files", pages, files)
	}
}

// TestLintian checks the deb as Debian does. The exceptions, with their reasons, are in
// deploy/packaging/lintian-overrides.
func TestLintian(t *testing.T) {
	run(t, "lintian", "--fail-on", "error,warning", "--allow-root", "--tag-display-limit", "0",
		deb(t, firstVersion))
}

// TestScripts checks the shell scripts of the project.
func TestScripts(t *testing.T) {
	var all []string
	for _, pattern := range []string{"../../tools/*.sh", "../../deploy/packaging/*.sh"} {
		names, err := filepath.Glob(pattern)
		harness.Check(t, err)
		if len(names) == 0 {
			t.Fatalf("no script matches %s", pattern)
		}
		all = append(all, names...)
	}
	run(t, "shellcheck", all...)
}

// differing matches the files that only one of the two packages has, or has at another place.
var differing = regexp.MustCompile(
	`^/usr/share/(lintian/|zsh/|doc/dispatcher/(LICENSE|changelog\.gz)$)`)

// TestRPM checks the rpm with rpm: its digests, its settings file, and that it has the files of the deb with
// the same modes. No test installs it.
func TestRPM(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(packagesOf(t, firstVersion), "*.rpm"))
	harness.Check(t, err)
	if len(found) != 1 {
		t.Fatalf("rpms: %q", found)
	}
	rpm := found[0]
	contains(t, run(t, "rpm", "-K", "--nosignature", rpm), "digests OK")
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	same(t, "name, version and architecture",
		run(t, "rpm", "-qp", "--qf", "%{NAME} %{VERSION} %{ARCH}", rpm),
		"dispatcher "+firstVersion+" "+arch)
	// RPM's flags of a file: 1 is config, 16 is noreplace.
	contains(t, run(t, "rpm", "-qp", "--qf", "[%{FILENAMES} %{FILEFLAGS}\n]", rpm),
		"/etc/dispatcher/dispatcher.env 17\n")
	scripts := run(t, "rpm", "-qp", "--scripts", rpm)
	contains(t, scripts, "postinstall scriptlet (using /bin/sh)", "preuninstall scriptlet (using /bin/sh)",
		"postuninstall scriptlet (using /bin/sh)")

	dir := t.TempDir()
	run(t, "sh", "-ec", `rpm2cpio "$0" | (cd "$1" && cpio -idm --quiet --no-absolute-filenames)`, rpm, dir)
	if got, want := listing(t, dir), listing(t, unpacked(t)); !slices.Equal(got, want) {
		t.Errorf("files of the rpm:\n%s\nof the deb:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	contains(t, run(t, filepath.Join(dir, "usr/bin/dispatcher"), "version"), "v"+firstVersion)
}

// listing returns the modes and names of the files that both packages have.
func listing(tb testing.TB, dir string) (all []string) {
	tb.Helper()
	for line := range strings.Lines(run(tb, "find", dir, "-type", "f", "-printf", "%m /%P\n")) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !differing.MatchString(name) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	slices.Sort(all)
	return all
}
