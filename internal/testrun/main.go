// Command testrun runs the tests in parts, one after another, and prints a table of the results:
//
//	go run ./internal/testrun [-part NAME,...] test|full|long
//
// A failed part does not end the run. For a failed test it prints the whole output and a command that runs
// only this test. For each package that passed it prints one line. The exit code is 1 if a test failed.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("part", "", "parts to run, separated by commas; empty: all")
	list := flag.Bool("list", false, "list the parts and run nothing")
	flag.Parse()
	size := flag.Arg(0)
	parts, err := choose(size, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	if *list {
		for _, p := range parts {
			fmt.Println(p.name)
		}
		return
	}
	began := time.Now()
	var outcomes []outcome
	for _, p := range parts {
		outcomes = append(outcomes, p.run(size))
	}
	if !report(os.Stdout, outcomes, time.Since(began)) {
		os.Exit(1)
	}
}

// choose returns the parts of a size, or only those of them in only.
func choose(size, only string) ([]part, error) {
	if size != sizeTest && size != sizeFull && size != sizeLong {
		return nil, fmt.Errorf("size must be %s, %s or %s, not %q", sizeTest, sizeFull, sizeLong, size)
	}
	all := slices.DeleteFunc(plan(), func(p part) bool { return !slices.Contains(p.sizes, size) })
	if only == "" {
		return all, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			var names []string
			for _, p := range all {
				names = append(names, p.name)
			}
			return nil, fmt.Errorf("no part %q; the parts of %s are %s", name, size,
				strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// An outcome is the result of a part.
type outcome struct {
	part           string
	passed, failed int // tests, and commands that are not tests
	took           time.Duration
}

// run runs the commands of a part.
func (p part) run(size string) outcome {
	fmt.Printf("== %s\n", p.name)
	o := outcome{part: p.name}
	began := time.Now()
	for _, c := range p.commands(size) {
		passed, failed := c.run()
		o.passed += passed
		o.failed += failed
	}
	o.took = time.Since(began)
	return o
}

// run runs a command to its end, and returns the numbers of passed and failed tests. A command that is not a
// test counts as one test.
func (c command) run() (passed, failed int) {
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Dir = c.dir
	// With a profile (PGO), go would compile every package a second time.
	cmd.Env = append(append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -pgo=off")),
		c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Printf("%s: %v\n", c, err)
		return 0, 1
	}
	stop := killOnSignal(cmd)
	defer stop()
	if !c.isTest() {
		out, readErr := io.ReadAll(stdout)
		if err := errors.Join(readErr, cmd.Wait()); err != nil {
			fmt.Printf("%s\n%s%sFAILED: %v\n", c, out, stderr.String(), err)
			return 0, 1
		}
		return 1, 0
	}
	t := newTests(c)
	readErr := t.read(stdout)
	err = errors.Join(readErr, cmd.Wait())
	if err == nil && t.passed == 0 {
		err = errors.New("no test ran")
	}
	if err != nil && t.failed == 0 {
		fmt.Printf("%s\n%sFAILED: %v\n", c, stderr.String(), err)
		t.failed++
	}
	return t.passed, t.failed
}

// killOnSignal kills the command and its children if this program is interrupted.
func killOnSignal(cmd *exec.Cmd) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if the command has ended
			os.Exit(1)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}

// An event is a line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // set in build events
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// maxOutput bounds the kept output of one test, in bytes. The end is kept.
const maxOutput = 64 << 10

// A testRun follows one run of go test.
type testRun struct {
	command        command
	passed, failed int
	output         map[string][]byte // by package and test
	inside         map[string]bool   // packages and tests with a failed subtest, which is reported instead
}

func newTests(c command) *testRun {
	return &testRun{command: c, output: map[string][]byte{}, inside: map[string]bool{}}
}

func (t *testRun) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Println(lines.Text()) // output of a tool, not an event
			continue
		}
		t.take(e)
	}
	return lines.Err()
}

func (t *testRun) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		kept := append(t.output[key], e.Output...)
		t.output[key] = kept[max(0, len(kept)-maxOutput):]
	case "build-output":
		fmt.Print(e.Output)
	case "pass", "skip":
		if e.Action == "skip" && e.Test != "" && !slices.Contains(t.command.argv, "-short") {
			t.output[key] = append(t.output[key], "skipped without -short\n"...)
			t.fail(e)
			break
		}
		delete(t.output, key)
		if e.Test == "" {
			fmt.Printf("   ok %-40s %6.1fs\n", short(e.Package), e.Elapsed)
		} else if e.Action == "pass" {
			t.passed++
			if t.command.slow && strings.Count(e.Test, "/") == 0 {
				fmt.Printf("   ok %-40s %6.1fs\n", e.Test, e.Elapsed)
			}
		}
	case "fail":
		t.fail(e)
	}
}

// fail counts a failed test and prints its output. Its parents and its package failed because of it, so they
// are not counted.
func (t *testRun) fail(e event) {
	key := e.Package + " " + e.Test
	output := string(t.output[key])
	delete(t.output, key)
	if e.Test == "" {
		t.printUnended(e.Package)
	}
	for i, c := range e.Test {
		if c == '/' { // the name of a test may contain slashes, so every prefix may be a parent
			t.inside[e.Package+" "+e.Test[:i]] = true
		}
	}
	if e.Test != "" {
		t.inside[e.Package+" "] = true
	}
	if t.inside[key] {
		if e.Test != "" {
			fmt.Print(output) // a parent's output may help
		}
		return
	}
	t.failed++
	fmt.Print(output)
	if e.Test == "" {
		fmt.Printf("FAILED: %s\n", short(e.Package))
		return
	}
	fmt.Printf("FAILED: %s %s; repeat: %s\n", short(e.Package), e.Test,
		t.command.repeat(e.Package, e.Test))
}

// printUnended prints the output of tests that were still running when their package ended. After a timeout
// or a panic the stacks are in the output of one of them.
func (t *testRun) printUnended(pkg string) {
	for _, key := range slices.Sorted(maps.Keys(t.output)) {
		test, ok := strings.CutPrefix(key, pkg+" ")
		if !ok || test == "" {
			continue
		}
		fmt.Printf("%sNOT ENDED: %s %s; repeat: %s\n", t.output[key], short(pkg), test,
			t.command.repeat(pkg, test))
		delete(t.output, key)
	}
}

// short returns the path of a package relative to the module.
func short(pkg string) string {
	rest, ours := strings.CutPrefix(pkg, module)
	if !ours {
		return pkg
	}
	return path.Join(".", rest)
}

// report prints the table. It returns true if no test failed and at least one passed.
func report(to io.Writer, outcomes []outcome, took time.Duration) bool {
	w := tabwriter.NewWriter(to, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "\npart\truns\tresult\ttime")
	passed, failed := 0, 0
	for _, o := range outcomes {
		result := "ok"
		if o.failed > 0 {
			result = fmt.Sprintf("%d FAILED", o.failed)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", o.part, o.passed+o.failed, result, o.took.Round(time.Second))
		passed += o.passed
		failed += o.failed
	}
	fmt.Fprintf(w, "all\t%d\t\t%s\n", passed+failed, took.Round(time.Second))
	w.Flush()
	fmt.Fprintf(to, "\n%d passed, %d failed\n", passed, failed)
	return failed == 0 && passed > 0
}
