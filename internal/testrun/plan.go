package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/seed-ff5a32d8/dispatcher"

// The sizes of a run. The tests read their size from TEST_SIZE (see package testserver).
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

// A part is a group of commands, and one line of the table.
type part struct {
	name     string
	sizes    []string // sizes of runs with this part
	commands func(size string) []command
}

// A command is a program with arguments.
type command struct {
	dir  string // empty: the root of the module
	env  []string
	argv []string
	slow bool // print each test when it ends
}

func (c command) String() string { return strings.Join(append(slices.Clone(c.env), c.argv...), " ") }

func (c command) isTest() bool { return slices.Contains(c.argv, "-json") }

// repeat returns a shell command that runs one test of this command again, with the same flags.
func (c command) repeat(pkg, test string) string {
	var pattern []string
	for name := range strings.SplitSeq(test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(name)+"$")
	}
	var words []string
	if c.dir != "" {
		words = append(words, "cd", c.dir, "&&")
	}
	words = append(words, c.env...)
	flags, _ := c.split()
	for _, flag := range flags {
		switch name, _, _ := strings.Cut(flag, "="); name {
		case "-json":
			words = append(words, "-v")
		case "-run", "-skip":
		default:
			words = append(words, flag)
		}
	}
	place, _ := strings.CutPrefix(short(pkg), c.dir)
	words = append(words, "-run='"+strings.Join(pattern, "/")+"'", "./"+strings.TrimPrefix(place, "/"))
	return strings.Join(words, " ")
}

// split separates the program and its flags (each a single word) from the packages. It drops -args and the
// words after it, which apply only to the whole part.
func (c command) split() (flags, packages []string) {
	for _, word := range c.argv {
		switch {
		case word == "-args":
			return flags, packages
		case strings.HasPrefix(word, "./") || word == ".":
			packages = append(packages, word)
		default:
			flags = append(flags, word)
		}
	}
	return flags, packages
}

// concurrent are the packages that make test runs with the race detector and -short, which needs no server.
// Package cmd/dispatcher takes longest, so it runs with the race detector only in make test-full, as all
// packages do.
var concurrent = []string{
	"./dispatch/...", "./schedule", "./schedule/memq", "./web", "./web/ui",
}

// onServers are the packages whose tests with goroutines need a server.
var onServers = []string{"./schedule/redisq", "./store/sqlstore"}

// storeSuite are the tests that run the conformance suite of the store.
var storeSuite = []string{"TestSQLite", "TestPostgres"}

// virtualHours are patterns of tests of package dispatch that pass hours of virtual time, which takes minutes
// with the race detector. They have the same goroutines as the simulation, which runs with it. The unit part
// and make test-full run these tests.
var virtualHours = []string{
	`Test\w*Horizon`, "TestWritesBetweenTheStepsOfALoad", "TestCourses/horizon", "TestCourses/due",
	"TestDeadMessagesFireNothing", "TestSuccessOfMaintenanceIsMeasured", "TestMissingMasterKeysAreMeasured",
}

// packages are all packages except those that start the built binary.
var packages = []string{
	".", "./client", "./cmd/...", "./dispatch/...", "./internal/...", "./migrations", "./schedule/...",
	"./store/...", "./web/...", "./e2e/harness/...",
}

const tags = "nomsgpack"

// fixed returns the same commands for every size.
func fixed(commands ...command) func(string) []command {
	return func(string) []command { return commands }
}

// each returns one command, which depends on the size.
func each(one func(size string) command) func(string) []command {
	return func(size string) []command { return []command{one(size)} }
}

// ofFaults returns the command for tests of package e2e/faults, chosen by a -run or -skip flag.
func ofFaults(choice string) func(string) []command {
	return each(func(size string) command { return faults(size, choice) })
}

// plan returns all parts in the order of a run. Parts that fail fast come first.
func plan() []part {
	verify := []string{"go", "mod", "verify"}
	return []part{
		{"vet", always, fixed(program("go", "vet", "-tags", tags, "./..."),
			program("go", "vet", "-tags", tags+" failpoints", "./..."),
			inBench("go", "vet", "-tags", tags, "./..."),
			inOutbox("go", "vet", "./..."),
			inOutboxTrial("go", "vet", "-tags", tags, "./..."),
			inTools("go", "vet", "./..."))},
		{"modules", always, fixed(program(verify...), inBench(verify...), inOutbox(verify...),
			inOutboxTrial(verify...), inTools(verify...))},
		{"staticcheck", always, fixed(
			program("go", "tool", "-modfile=tools/go.mod", "staticcheck", "-tags", tags, "./..."),
			inBench("go", "tool", "-modfile=../../tools/go.mod", "staticcheck", "-tags", tags, "./..."),
			inOutbox("go", "tool", "-modfile=../tools/go.mod", "staticcheck", "./..."),
			inOutboxTrial("go", "tool", "-modfile=../../tools/go.mod", "staticcheck", "-tags", tags, "./..."),
			inTools("go", "tool", "staticcheck", "./..."))},
		{"unit", always, each(func(size string) command { return tests(size, "25m", packages...) })},
		{"race", always, func(size string) []command {
			if size == sizeFull {
				// The race detector makes tests ten times slower, so only the store's suite has its full
				// size. All other tests have the size of make test.
				return []command{
					race(sizeTest, slices.Concat([]string{skip(storeSuite...)}, packages)...),
					race(sizeFull, run(storeSuite...), "./store/sqlstore"),
				}
			}
			return []command{
				race(sizeTest, slices.Concat([]string{"-short", skip(virtualHours...)}, concurrent)...),
				// The skipped tests use one goroutine each.
				race(sizeTest, append([]string{skip("TestSQLiteWithoutCache$", "TestPostgresC$")},
					onServers...)...),
			}
		}},
		{"deploy", always, each(func(size string) command {
			if size == sizeTest { // promtool and Alertmanager are installed for make test-full
				return tests(size, "10m", "-short", "./deploy")
			}
			return tests(size, "10m", "./deploy")
		})},
		// Their libraries take minutes to compile, so make test does without these checks.
		{"deploy-check", fullOnly, fixed(
			inCheck("go", "vet", "-tags", tags, "./..."),
			inCheck(verify...),
			inCheck("go", "tool", "-modfile=../../tools/go.mod", "staticcheck", "-tags", tags, "./..."),
			tests(sizeFull, "20m", "./...").in(checkDir))},
		{"bench", always, fixed(tests(sizeTest, "10m", "-short", "./...").in("e2e/bench"))},
		{"outbox", always, fixed(tests(sizeTest, "10m", "./...").in("outbox"),
			tests(sizeTest, "10m", "./...").in(outboxTrial))},
		{"tools", always, fixed(tests(sizeTest, "10m", "./...").in("tools"))},
		{"smoke", always, func(size string) []command {
			commands := []command{tests(sizeTest, "10m", "./e2e/smoke").announced()}
			if size == sizeTest { // make test-full runs all of the browser's tests
				commands = append(commands, tests(sizeTest, "10m", run(oneStory), "./e2e/browser"))
			}
			return commands
		}},
		{"browser", fullOnly, fixed(tests(sizeFull, "30m", skip(pageCosts), "./e2e/browser",
			"-args", "-screens", "../../screens").announced())},
		{"packages", fullOnly, fixed(tests(sizeFull, "30m", "./e2e/packages").announced())},
		// It builds goreleaser once, which takes minutes.
		{"release", fullOnly, fixed(
			program("go", "tool", "-modfile=tools/goreleaser.mod", "goreleaser", "check"))},
		{"docs", fullOnly, fixed(tests(sizeFull, "30m", "./e2e/docs").announced())},
		{"pages", largest, each(func(size string) command {
			return tests(size, "30m", run(pageCosts), "./e2e/browser").announced()
		})},
		{"faults", fullOnly, fixed(faults(sizeFull, run(matrix, heavy),
			"-args", "-faults-report", "../../docs/reports/faults.md"))},
		{"relay", []string{sizeTest, sizeFull, sizeLong}, each(relay)},
		{"relay-costs", largest, each(func(size string) command {
			if size == sizeLong {
				return tests(size, "120m", run(heldSnapshot), "./e2e/relay").announced()
			}
			return tests(size, "60m", run(relayCosts), "./e2e/relay", "-args", "-relay-report",
				relayReport).announced()
		})},
		{"alerts", fullOnly, fixed(tests(sizeFull, "15m", "./e2e/alerts",
			"-args", "-alerts-report", "../../docs/reports/alerts.md").announced())},
		{"heavy", longOnly, ofFaults(run(heavy))},
		{"races", largest, ofFaults(run(races))},
		{"polls", largest, ofFaults(run(polls...))},
		{"redrives", largest, ofFaults(run(redrives))},
		{"outage", largest, ofFaults(run(outage))},
		{"horizon", largest, ofFaults(run(horizon))},
		{"retention", largest, ofFaults(run(retention))},
		{"snapshot", longOnly, ofFaults(run(snapshot))},
		{"others", fullOnly, ofFaults(skip(slices.Concat([]string{
			matrix, heavy, races, redrives, horizon, outage, retention, snapshot}, polls)...))},
		// New vulnerabilities are published without a change of this code, so make test does not check them.
		{"vulnerabilities", longOnly, fixed(program("tools/vulncheck.sh"))},
		{"reproducible", longOnly, fixed(program("tools/reproducible.sh"))},
		{"fuzz", longOnly, fuzz},
	}
}

// The names or prefixes of names of the tests of parts.
const (
	oneStory  = "TestBrowserOperatorsDay$"
	pageCosts = "TestBrowserPagesCostLittle$"
	matrix    = "TestFaults$"
	heavy     = "TestHeavyFaults$"
	races     = "TestRaces"
	redrives  = "TestARedrive"
	horizon   = "TestHorizon"
	outage    = "TestANewCallbackAfterAnOutage$"
	retention = "TestRetentionKeepsUp"
	snapshot  = "TestASnapshotHeld"

	longFaults   = "TestLongFaults$"
	relayCosts   = "TestCosts"
	heldSnapshot = "TestCostsOfAHeldSnapshot$"
)

// relayReport has the results of the faults and of the costs of the relay.
const relayReport = "../../docs/reports/relay.md"

// relay returns the command for the faults of the relay. make test has some of them, and make test-long those
// that take more than two minutes in their real length.
func relay(size string) command {
	switch size {
	case sizeTest:
		return tests(size, "10m", skip(relayCosts), "./e2e/relay").announced()
	case sizeFull:
		return tests(size, "40m", skip(relayCosts), "./e2e/relay", "-args", "-relay-report",
			relayReport).announced()
	}
	return tests(size, "120m", run(longFaults), "./e2e/relay").announced()
}

var polls = []string{"TestAPollKilled", "TestOpenPolls", "TestThreeDispatchers"}

// run and skip return the flag that selects or skips tests by prefixes of their names.
func run(names ...string) string { return "-run=^" + strings.Join(names, "|^") }

func skip(names ...string) string { return "-skip=^" + strings.Join(names, "|^") }

func program(argv ...string) command { return command{argv: argv} }

func inBench(argv ...string) command { return program(argv...).in("e2e/bench") }

func inOutbox(argv ...string) command { return program(argv...).in("outbox") }

// outboxTrial is the module that runs module outbox on real servers.
const outboxTrial = "e2e/outbox"

func inOutboxTrial(argv ...string) command { return program(argv...).in(outboxTrial) }

// checkDir is the module that checks the files in deploy.
const checkDir = "deploy/check"

func inCheck(argv ...string) command { return program(argv...).in(checkDir) }

func inTools(argv ...string) command { return program(argv...).in("tools") }

// in returns the command with another directory.
func (c command) in(dir string) command {
	c.dir = dir
	return c
}

// tests returns a go test command without the race detector.
func tests(size, timeout string, args ...string) command {
	argv := []string{"go", "test", "-json", "-tags=" + tags, "-count=1", "-timeout=" + timeout}
	return command{env: environment(size), argv: append(argv, args...)}
}

// race returns a go test command with the race detector. SQLite itself is not instrumented, which would take
// three times as long: it is translated C with its own locks and tests. Its callers are instrumented.
func race(size string, args ...string) command {
	flags := []string{"-race", "-gcflags=modernc.org/sqlite/lib=-race=false"}
	c := tests(size, "25m", slices.Concat(flags, args)...)
	c.env = append(c.env, "CGO_ENABLED=1")
	return c
}

// faults returns a command for tests of package e2e/faults, chosen by a -run or -skip flag.
func faults(size, choice string, args ...string) command {
	return tests(size, "60m", append([]string{choice, "./e2e/faults"}, args...)...).announced()
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

// fuzz returns a command for each fuzz test of the module.
func fuzz(string) []command {
	var all []command
	for _, target := range fuzzTargets(".") {
		all = append(all, program("go", "test", "-tags", tags, "-run", "^$",
			"-fuzz", "^"+target.name+"$", "-fuzztime", "30s", target.dir))
	}
	return all
}

// A fuzzTarget is one fuzz test and the directory of its package.
type fuzzTarget struct{ dir, name string }

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzzTargets returns all fuzz tests below a directory.
func fuzzTargets(root string) []fuzzTarget {
	var targets []fuzzTarget
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range fuzzFunc.FindAllSubmatch(text, -1) {
			targets = append(targets, fuzzTarget{"./" + filepath.Dir(name), string(m[1])})
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun: find the fuzz tests:", err)
		os.Exit(1)
	}
	return targets
}
