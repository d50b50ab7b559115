package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlanNamesEveryPartOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range plan() {
		if seen[p.name] {
			t.Errorf("two parts have the name %s", p.name)
		}
		seen[p.name] = true
	}
	for _, size := range []string{sizeTest, sizeFull, sizeLong} {
		if parts, err := choose(size, ""); err != nil || len(parts) == 0 {
			t.Errorf("size %s has %d parts, %v", size, len(parts), err)
		}
	}
	if _, err := choose(sizeTest, "smok"); err == nil || !strings.Contains(err.Error(), "smoke") {
		t.Errorf("error of an unknown part: %v; want the names of the known parts", err)
	}
	if _, err := choose("short", ""); err == nil {
		t.Error("an unknown size gave no error")
	}
}

// TestEventsAreCounted checks that a failed subtest counts once, and not again for its parent and package.
func TestEventsAreCounted(t *testing.T) {
	c := tests(sizeTest, "1m", "./x")
	run := newTests(c)
	err := run.read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB/one/name","Output":"b_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB/one/name"}
{"Action":"pass","Package":"p","Test":"TestB/two"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
{"Action":"fail","Package":"q"}
`))
	if err != nil || run.passed != 2 || run.failed != 2 {
		t.Errorf("%d passed, %d failed, %v; want 2, 2", run.passed, run.failed, err)
	}
}

// TestRepeat checks that the command for one test has the flags of its part, except those that choose tests.
func TestRepeat(t *testing.T) {
	c := race(sizeTest, "-short", skip("TestB"), "./store", "./web")
	want := `TEST_SIZE= CGO_ENABLED=1 go test -v -tags=nomsgpack -count=1 -timeout=25m -race ` +
		`-gcflags=modernc.org/sqlite/lib=-race=false -short -run='^TestB$/^a b$' ./store`
	if got := c.repeat(module+"/store", "TestB/a b"); got != want {
		t.Errorf("the command is\n%s, want\n%s", got, want)
	}
	c = tests(sizeTest, "1m", "./...")
	c.dir = "e2e/bench"
	got := c.repeat(module+"/e2e/bench", "TestB")
	if !strings.HasPrefix(got, "cd e2e/bench && TEST_SIZE= go test") || !strings.HasSuffix(got, " ./") {
		t.Errorf("the command in another module is %s", got)
	}
}

// TestWhatDoesNotRunFails checks that a skipped test fails the run without -short, and that a run without
// tests fails. The output of a test that did not end is printed when its package fails.
func TestWhatDoesNotRunFails(t *testing.T) {
	const events = `{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out\n"}
{"Action":"skip","Package":"q"}
`
	for _, c := range []struct {
		command command
		more    string
		failed  int
	}{
		{tests(sizeTest, "1m", "./p"), "", 1},
		{tests(sizeTest, "1m", "-short", "./p"), "", 0},
		{tests(sizeTest, "1m", "-short", "./p"), `{"Action":"fail","Package":"p"}`, 1},
	} {
		run := newTests(c.command)
		if err := run.read(strings.NewReader(events + c.more)); err != nil || run.failed != c.failed {
			t.Errorf("%s: %d failed, %v; want %d", c.command, run.failed, err, c.failed)
		}
		if left := run.output["p TestB"]; c.more != "" && left != nil {
			t.Errorf("the output of TestB was not printed: %s", left)
		}
	}
	c := tests(sizeTest, "1m", "-run=^TestNothingOfThisName$", ".")
	if passed, failed := c.run(); passed != 0 || failed != 1 {
		t.Errorf("command without a test: %d passed, %d failed", passed, failed)
	}
}

// TestChoicesNameTests checks that each pattern in a -run or -skip flag matches a test. So a renamed test
// cannot drop out of the plan unnoticed.
func TestChoicesNameTests(t *testing.T) {
	root := filepath.Join("..", "..")
	checked := 0
	for _, size := range []string{sizeTest, sizeFull, sizeLong} {
		for _, p := range plan() {
			if !slices.Contains(p.sizes, size) || p.name == "fuzz" {
				continue
			}
			for _, c := range p.commands(size) {
				flags, packages := c.split()
				for _, flag := range flags {
					name, pattern, _ := strings.Cut(flag, "=")
					if name != "-run" && name != "-skip" {
						continue
					}
					tests := testsIn(t, root, packages)
					for prefix := range strings.SplitSeq(pattern, "|") {
						checked++
						if !slices.ContainsFunc(tests, regexp.MustCompile(prefix).MatchString) {
							t.Errorf("part %s of %s: no test matches %s", p.name, size, prefix)
						}
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d names were checked", checked)
	}
}

// TestEveryDirectoryWithTestsIsRun finds tests that no part of make test-full runs.
func TestEveryDirectoryWithTestsIsRun(t *testing.T) {
	var run []string
	for _, p := range plan() {
		if !slices.Contains(p.sizes, sizeFull) {
			continue
		}
		for _, c := range p.commands(sizeFull) {
			if !c.isTest() {
				continue
			}
			_, packages := c.split()
			for _, pkg := range packages {
				run = append(run, path.Join(c.dir, pkg))
			}
		}
	}
	isRun := func(dir string) bool {
		return slices.ContainsFunc(run, func(pkg string) bool {
			parent, deep := strings.CutSuffix(pkg, "...")
			return dir == pkg || deep && strings.HasPrefix(dir+"/", parent)
		})
	}
	found := 0
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if !strings.HasSuffix(name, "_test.go") {
			return err
		}
		found++
		if !isRun(path.Dir(name)) {
			t.Errorf("no part runs the tests in %s", name)
		}
		return err
	})
	if err != nil || found < 100 {
		t.Errorf("%d files with tests, %v", found, err)
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testsIn returns the names of the tests of packages, and of the courses, each of which is a file.
func testsIn(t *testing.T, root string, packages []string) (names []string) {
	t.Helper()
	for _, pkg := range packages {
		dir, deep := strings.CutSuffix(pkg, "/...")
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if err == nil && !deep && name != filepath.Join(root, dir) {
					return fs.SkipDir
				}
				return err
			}
			course, ok := strings.CutSuffix(d.Name(), ".txt")
			if ok && filepath.Base(filepath.Dir(name)) == "courses" {
				names = append(names, "TestCourses/"+course)
			}
			if !strings.HasSuffix(name, "_test.go") {
				return nil
			}
			text, err := os.ReadFile(name)
			for _, m := range testFunc.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func TestReportFailsWithoutATest(t *testing.T) {
	var b strings.Builder
	if report(&b, []outcome{{part: "unit"}}, time.Second) {
		t.Error("a run without a test passed")
	}
	if !report(&b, []outcome{{part: "unit", passed: 1}}, time.Second) ||
		!strings.Contains(b.String(), "1 passed, 0 failed") {
		t.Errorf("the report is %s", &b)
	}
}
