package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A releaseHeading is the heading of a release in CHANGELOG.md. A version that is not released has no date.
var releaseHeading = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$`)

// newestRelease returns the tag of the newest release before this commit, for example v0.1.0, or "" if there
// is none. The changelog of the commit before names it, so a release is compared with the one before it.
func newestRelease() (string, error) {
	changelog, err := exec.Command("git", "-C", "../..", "show", "HEAD^:CHANGELOG.md").Output()
	if err != nil {
		return "", fmt.Errorf("changelog of the commit before (it needs a clone with history): %w", err)
	}
	heading := releaseHeading.FindSubmatch(changelog)
	if heading == nil {
		return "", nil
	}
	return "v" + string(heading[1]), nil
}

// buildRelease builds the binary of the newest release from a copy of its files.
var buildRelease = sync.OnceValues(func() (string, error) {
	tag, err := newestRelease()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(harness.WorkDir, tag)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "files.tar")
	for _, argv := range [][]string{
		{"git", "-C", "../..", "archive", "-o", archive, tag},
		{"tar", "-xf", archive, "-C", dir},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("files of release %s (a clone needs its tag: git fetch --tags): %w\n%s",
				tag, err, out)
		}
	}
	return harness.Build(filepath.Join(dir, "dispatcher"), "-C", dir)
})
