package dispatcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBaseImagesAreGivenByDigest: a tag can be moved to another image, a digest cannot. A line "# syntax="
// would fetch one more image.
func TestBaseImagesAreGivenByDigest(t *testing.T) {
	text := read(t, "Dockerfile")
	for _, wrong := range looseImages(text) {
		t.Errorf("Dockerfile: %q has no digest; run make digests", wrong)
	}
	release := read(t, "Dockerfile.release")
	for _, wrong := range looseImages(strings.Replace(release, "FROM scratch AS data\n", "", 1)) {
		t.Errorf("Dockerfile.release: %q has no digest", wrong)
	}
	if bases := fromLine.FindAllString(text, -1); !strings.Contains(release, "\n"+bases[len(bases)-1]+"\n") {
		t.Errorf("Dockerfile.release: not on the base of the Dockerfile, %s", bases[len(bases)-1])
	}
	if !strings.Contains(text, "\nENV GOTOOLCHAIN=go1.") {
		t.Error("Dockerfile: ENV GOTOOLCHAIN does not name the compiler; make vulncheck judges by it")
	}
	for _, bad := range []string{
		"# syntax=docker/dockerfile:1\n", "FROM golang:1.26-bookworm AS build\n", "FROM golang\n",
		"FROM --platform=$BUILDPLATFORM golang:1 AS build\n", "FROM golang:1@sha256:12\n", "from golang:1\n",
	} {
		if len(looseImages(bad)) != 1 {
			t.Errorf("%q was taken for an image with a digest", bad)
		}
	}
}

var (
	fromLine = regexp.MustCompile(`(?im)^(#\s*syntax\s*=|FROM\s).*$`)
	byDigest = regexp.MustCompile(`@sha256:[0-9a-f]{64}( AS \w+)?$`)
)

// looseImages are the lines of a Dockerfile that name an image without a digest.
func looseImages(dockerfile string) []string {
	return slices.DeleteFunc(fromLine.FindAllString(dockerfile, -1), byDigest.MatchString)
}

// licences are what a module may be under. MPL-2.0 binds the files that are under it and no others.
var licences = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "Zlib",
}

// TestLicencesAreListedAndAllowed compares docs/reports/licenses.md with go.mod.
func TestLicencesAreListedAndAllowed(t *testing.T) {
	mod := read(t, "go.mod")
	for _, wrong := range unlicensed(mod, read(t, "docs/reports/licenses.md")) {
		t.Errorf("docs/reports/licenses.md: %s; run make licenses", wrong)
	}
	const page = "| a.org/b | v1.0.0 | MIT, ISC |\n"
	for _, c := range []struct{ mod, page, want string }{
		{"require a.org/b v1.0.0\n", page, ""},
		{"require (\n\ta.org/b v1.0.0 // indirect\n)\n", page, ""},
		{"require a.org/b v1.0.0\n", "", "a.org/b v1.0.0 is not listed"},
		{"require a.org/b v1.0.1\n", page, "a.org/b v1.0.0 is not in go.mod; a.org/b v1.0.1 is not listed"},
		{"require a.org/b v0.9.0\nreplace a.org/b => a.org/b v1.0.0\n", page, ""},
		{"", page, "a.org/b v1.0.0 is not in go.mod"},
		{"require a.org/b v1.0.0\n", "| a.org/b | v1.0.0 | MIT, GPL-3.0 |\n",
			`a.org/b v1.0.0 is under "GPL-3.0"`},
		{"require a.org/b v1.0.0\n", "| a.org/b | v1.0.0 |  |\n", `a.org/b v1.0.0 is under ""`},
	} {
		if got := strings.Join(unlicensed(c.mod, c.page), "; "); !strings.HasPrefix(got, c.want) ||
			c.want == "" && got != "" {
			t.Errorf("go.mod %q, page %q: %q, want %q", c.mod, c.page, got, c.want)
		}
	}
}

var (
	requireLine = regexp.MustCompile(`(?m)^(?:require )?\s*([\w.-]+\.[\w.-]+\S*) (v\S+)`)
	replaceLine = regexp.MustCompile(`(?m)^replace (\S+)(?: v\S+)? => \S+ (v\S+)`)
	licenceRow  = regexp.MustCompile(`(?m)^\| (\S+\.\S+) \| (v\S+) \| (.*) \|$`)
)

// unlicensed says what is wrong with the list of licences.
func unlicensed(mod, page string) (wrong []string) {
	wanted := map[string]string{}
	for _, m := range requireLine.FindAllStringSubmatch(mod, -1) {
		wanted[m[1]] = m[2]
	}
	for _, m := range replaceLine.FindAllStringSubmatch(mod, -1) {
		wanted[m[1]] = m[2]
	}
	for _, row := range licenceRow.FindAllStringSubmatch(page, -1) {
		name := row[1] + " " + row[2]
		if wanted[row[1]] != row[2] {
			wrong = append(wrong, name+" is not in go.mod")
			continue
		}
		delete(wanted, row[1])
		for id := range strings.SplitSeq(row[3], ", ") {
			if !slices.Contains(licences, id) {
				wrong = append(wrong, name+` is under "`+id+`", which is not one of `+strings.Join(licences,
					", "))
			}
		}
	}
	for path, version := range wanted {
		wrong = append(wrong, path+" "+version+" is not listed")
	}
	slices.Sort(wrong)
	return wrong
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// modernc.org/sqlite is machine-made for one exact version of modernc.org/libc; with another one it fails at
// run time in ways that look like a broken database.
func TestLibcIsTheOneThatSQLiteNames(t *testing.T) {
	ours, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sqlite := required(t, "go.mod", ours, "modernc.org/sqlite")
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatalf("go env GOMODCACHE: %v", err)
	}
	name := filepath.Join(strings.TrimSpace(string(out)), "cache", "download", "modernc.org", "sqlite", "@v",
		sqlite+".mod")
	theirs, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("the go.mod of modernc.org/sqlite %s is not in the module cache; run go mod download: %v",
			sqlite, err)
	}
	got, want := required(t, "go.mod", ours, "modernc.org/libc"),
		required(t, name, theirs, "modernc.org/libc")
	// Another module may ask for a newer libc; then a replace directive is what keeps ours.
	if m := regexp.MustCompile(`modernc\.org/libc(?: v\S+)? => modernc\.org/libc (v\S+)`).FindSubmatch(
		ours); m != nil {
		got = string(m[1])
	}
	if got != want {
		t.Errorf("the build uses modernc.org/libc %s, but modernc.org/sqlite %s was made for %s; pin it in "+
			"go.mod: "+
			"replace modernc.org/libc => modernc.org/libc %s", got, sqlite, want, want)
	}
}

// required reads the version of a module out of the text of a go.mod.
func required(t *testing.T, name string, mod []byte, of string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(of) + `\s+(v\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatalf("%s does not require %s", name, of)
	}
	return string(m[1])
}
