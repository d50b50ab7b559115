package main

import (
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/seed-ff5a32d8/dispatcher"

// The sizes of a run. The tests read theirs from TEST_SIZE: see package testserver.
const (
	sizeTest = "test"
	sizeFull = "full"
	sizeLong = "long"
)

var (
	always   = []string{sizeTest, sizeFull}
	fullOnly = []string{sizeFull}
	largest  = []string{sizeFull, sizeLong}
	longOnly = []string{sizeLong}
)

// A part is a line of the table.
type part struct {
	name     string
	sizes    []string // of the runs that have it
	commands func(size string) []command
}

// A command is one program to run.
type command struct {
	dir  string // empty: the root of the module
	env  []string
	argv []string
	slow bool // each of its tests is announced when it ends
}

func (c command) String() string { return strings.Join(append(slices.Clone(c.env), c.argv...), " ") }

func (c command) isTest() bool { return slices.Contains(c.argv, "-json") }

// alone is the command that runs one test again.
func (c command) alone(pkg, test string) string {
	var names []string
	for name := range strings.SplitSeq(test, "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	words := slices.Clone(c.env)
	if c.dir != "" {
		words = append(words, "cd", c.dir, "&&")
	}
	words = append(words, "go test -tags nomsgpack -count=1 -v")
	if slices.Contains(c.argv, "-race") {
		words = append(words, "-race")
	}
	return strings.Join(append(words, "-run", "'"+strings.Join(names, "/")+"'", "./"+short(pkg)), " ")
}

// concurrent are the packages that make test runs under the race detector. Their short size, which needs no server,
// has the tests with goroutines in it; package sqlstore leaves out there what runs in one.
var concurrent = []string{
	"./dispatch", "./dispatch/outbound", "./schedule/memq", "./schedule/redisq", "./store/sqlstore", "./web/ui",
}

// virtualHours matches tests of package dispatch that let hours of virtual time pass, which takes minutes under the race
// detector. They have no goroutines that the simulation does not have. The unit part and make test-full run them.
const virtualHours = "Horizon|TestWritesBetweenTheStepsOfALoad|TestActivityOf|TestRedrive$|TestAScheduleIsChanged"

// packages are all but those that start the built binary.
var packages = []string{
	".", "./cmd/...", "./dispatch/...", "./internal/...", "./migrations", "./schedule/...", "./store/...", "./web/...",
	"./e2e/harness/...",
}

const tags = "nomsgpack"

// plan is every part, in the order of a run: what fails soonest comes first.
func plan() []part {
	return []part{
		{"vet", always, func(string) []command {
			return []command{
				program("go", "vet", "-tags", tags, "./..."),
				program("go", "vet", "-tags", tags+" failpoints", "./..."),
				inBench("go", "vet", "-tags", tags, "./..."),
			}
		}},
		{"staticcheck", always, func(string) []command {
			return []command{
				program("go", "tool", "-modfile=tools/go.mod", "staticcheck", "-tags", tags, "./..."),
				inBench("go", "tool", "-modfile=../../tools/go.mod", "staticcheck", "-tags", tags, "./..."),
			}
		}},
		{"unit", always, func(size string) []command { return []command{tests(size, "25m", packages...)} }},
		{"race", always, func(size string) []command {
			args := slices.Concat([]string{"-short", "-skip", virtualHours}, concurrent)
			if size == sizeFull {
				args = packages
			}
			return []command{race(sizeTest, args...)}
		}},
		{"bench", always, func(string) []command {
			c := tests(sizeTest, "10m", "-short", "./...")
			c.dir = "e2e/bench"
			return []command{c}
		}},
		{"smoke", always, func(size string) []command {
			commands := []command{tests(sizeTest, "10m", "./e2e/smoke").announced()}
			if size == sizeTest { // make test-full runs all of the browser's tests
				commands = append(commands, tests(sizeTest, "10m", "-run", "^TestBrowserOperatorsDay$", "./e2e/browser"))
			}
			return commands
		}},
		{"browser", fullOnly, func(string) []command {
			c := tests(sizeFull, "30m", "-skip", "^TestBrowserPagesCostLittle$", "./e2e/browser").announced()
			c.argv = append(c.argv, "-args", "-screens", "../../screens")
			return []command{c}
		}},
		{"pages", largest, func(size string) []command {
			return []command{tests(size, "30m", "-run", "^TestBrowserPagesCostLittle$", "./e2e/browser").announced()}
		}},
		{"faults", fullOnly, func(string) []command {
			c := faults(sizeFull, "^(TestFaults|TestHeavyFaults)$")
			c.argv = append(c.argv, "-args", "-faults-report", "../../docs/faults.md")
			return []command{c}
		}},
		{"heavy", longOnly, func(size string) []command { return []command{faults(size, "^TestHeavyFaults$")} }},
		{"races", largest, func(size string) []command { return []command{faults(size, "^TestRaces")} }},
		{"polls", largest, func(size string) []command {
			return []command{faults(size, "^(TestAPollKilled|TestOpenPolls|TestThreeDispatchers)")}
		}},
		{"redrives", largest, func(size string) []command { return []command{faults(size, "^TestARedrive")} }},
		{"horizon", largest, func(size string) []command { return []command{faults(size, "^TestHorizon")} }},
		{"others", fullOnly, func(size string) []command {
			c := tests(size, "60m", "-skip", "^Test(Faults|HeavyFaults|Races|APollKilled|OpenPolls|ThreeDispatchers|ARedrive|Horizon)",
				"./e2e/faults")
			return []command{c.announced()}
		}},
		{"fuzz", longOnly, fuzz},
	}
}

func program(argv ...string) command { return command{argv: argv} }

func inBench(argv ...string) command { return command{dir: "e2e/bench", argv: argv} }

// tests runs packages without the race detector, on real servers.
func tests(size, timeout string, args ...string) command {
	argv := []string{"go", "test", "-json", "-tags", tags, "-count=1", "-timeout", timeout}
	return command{env: environment(size), argv: append(argv, args...)}
}

// race runs packages under the race detector. SQLite itself, translated C with locks and tests of its own, is not
// watched: that would take three times as long. All that calls it is.
func race(size string, args ...string) command {
	c := tests(size, "25m", slices.Concat([]string{"-race", "-gcflags=modernc.org/sqlite/lib=-race=false"}, args)...)
	c.env = append(c.env, "CGO_ENABLED=1")
	return c
}

// faults runs tests of package e2e/faults.
func faults(size, pattern string) command {
	return tests(size, "60m", "-run", pattern, "./e2e/faults").announced()
}

func (c command) announced() command {
	c.slow = true
	return c
}

func environment(size string) []string {
	if size == sizeTest {
		size = ""
	}
	return []string{"TEST_SIZE=" + size}
}

// fuzz gives every fuzz test of the module a while.
func fuzz(string) []command {
	var all []command
	for _, target := range fuzzTargets(".") {
		all = append(all, program("go", "test", "-tags", tags, "-run", "^$",
			"-fuzz", "^"+target.name+"$", "-fuzztime", "20s", target.dir))
	}
	return all
}
