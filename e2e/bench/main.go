// Command bench measures the built dispatcher as a black box: against the bare HTTP client and two queues
// (compare), against another build (pair), and with growing data and load (scale). Every callback of a
// measurement must arrive exactly once and not before it is due, otherwise the run fails. A slow run does not
// fail. The command needs Linux, redis-server and PostgreSQL.
//
// It is a separate module, so that the other systems are not in the product's go.mod.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func main() {
	err := errors.New("usage: bench compare|pair|scale|scaling [flags]; -h after the command lists its flags")
	commands := map[string]func(args []string) error{
		"compare": compareCommand, "pair": pairCommand, "scale": scaleCommand, "scaling": scalingCommand,
		processCommand: runProcess,
	}
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		err = commands[os.Args[1]](os.Args[2:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// outside is testserver.Outside with one directory for all temporary files. It removes the directory after an
// interrupt too, because millions of rows would stay on the disk. Child processes end with this one.
func outside(f func(testing.TB)) error {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return err
	}
	// PostgreSQL runs as another user, who must read the directory.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Setenv("TMPDIR", dir)); err != nil {
		return err
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupts
		os.RemoveAll(dir)
		os.Exit(130)
	}()
	return errors.Join(testserver.Outside(f), os.RemoveAll(dir))
}

// A bench has the settings of all measurements of one command.
type bench struct {
	n           int // callbacks of one measurement
	concurrency int // requests in flight
	receiver    *receiver
	profiles    string // directory for profiles of the dispatcher; empty: none
}

// newFlags returns the flags of every measuring command.
func newFlags(name string) (*flag.FlagSet, *bench) {
	flags, b := flag.NewFlagSet(name, flag.ContinueOnError), &bench{}
	flags.IntVar(&b.n, "n", 50_000, "callbacks of one measurement")
	flags.IntVar(&b.concurrency, "concurrency", 64, "requests in flight, for every system")
	return flags, b
}

// A build is a dispatcher to measure.
type build struct {
	program string
	args    []string // further arguments of serve
}

// buildDispatcher compiles this checkout like a release.
func buildDispatcher(tb testing.TB) build {
	program := filepath.Join(tb.TempDir(), "dispatcher")
	cmd := exec.Command("go", "build", "-tags", "nomsgpack", "-o", program, "./cmd/dispatcher")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build the dispatcher: %v\n%s", err, out)
	}
	return build{program: program}
}

// A run is one measurement, with its own processes and stores, which end with it.
type run struct {
	testing.TB
	*bench
	build
	system  system
	roles   map[int]string // role of a process by id; other processes are named by their program
	figures figures
}

// within calls f with a run of a system, and returns the figures that f adds to the run.
func (b *bench) within(of build, s system, f func(*run)) (figures, error) {
	r := &run{bench: b, build: of, system: s, roles: map[int]string{}, figures: figures{}}
	err := testserver.Outside(func(tb testing.TB) {
		r.TB = tb
		f(r)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return r.figures, nil
}

// must ends the test of tb on an error.
func must(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

// check fails the measurement on an error.
func (r *run) check(what string, err error) {
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// pick returns the items that a list names, in the order of the list; all items if the list is empty.
func pick[T fmt.Stringer](list string, all []T) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var picked []T
	for word := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(item T) bool { return item.String() == word })
		if i < 0 {
			return nil, fmt.Errorf("unknown name %q", word)
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// logf reports progress.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// A system is one of the compared systems.
type system struct {
	name, label string
	// counted are the roles whose CPU time and memory belong to the system.
	counted []string
	// args returns a dispatcher's arguments for new and empty stores, and queue creates a new and empty
	// queue. The floor has neither.
	args  func(*run) []string
	queue func(*run) queue
}

const floorName = "floor"

var systems = []system{
	{name: floorName, label: "floor: go-retryablehttp + HMAC in a loop", counted: []string{roleFloor}},
	{
		name: "sqlite", label: "dispatcher, SQLite + embedded index",
		args:    func(r *run) []string { return []string{"--data-dir", r.TempDir()} },
		counted: []string{roleDispatcher},
	},
	{
		name: "postgres", label: "dispatcher, PostgreSQL + Redis",
		args: func(r *run) []string {
			return []string{"--data-dir", r.TempDir(), "--database-url",
				testserver.NewPostgres(r).Database(r),
				"--redis-url", testserver.NewRedis(r).URL}
		},
		counted: []string{roleDispatcher, roleRedis, rolePostgres},
	},
	{
		name: "asynq", label: "asynq, Redis", queue: newAsynq,
		counted: []string{roleAsynq, roleRedis},
	},
	{
		name: "river", label: "River, PostgreSQL", queue: newRiver,
		counted: []string{roleRiver, rolePostgres},
	},
}

func (s system) String() string { return s.name }

// A phase is one kind of measurement of a system. phases.go has the functions.
type phase struct {
	name, text string
	// dispatcher and queue measure the phase; nil: such systems do not have it.
	dispatcher func(*session)
	queue      func(*run, queue)
	// rated: the phase has a rate and CPU time, which are compared with the floor's.
	rated bool
}

var phases = []phase{
	{name: "drain", text: "delivered, from a backlog", dispatcher: drain, queue: drainQueue, rated: true},
	{name: "single", text: "accepted, one a request", dispatcher: acceptSingly, rated: true},
	{name: "batch", text: "accepted, 100 a request", dispatcher: acceptInBatches, rated: true},
	{name: "mixed", text: "accepted singly and delivered at once", dispatcher: mixed, rated: true},
	{name: "latency", text: "from request to arrival at 500/s", dispatcher: latency, queue: queueLatency},
	{name: "lateness", text: "lateness of delayed callbacks", dispatcher: lateness},
}

func (p phase) String() string { return p.name }

// of reports whether the system has the phase. The floor has every phase that is compared with it.
func (p phase) of(s system) bool {
	switch {
	case s.args != nil:
		return p.dispatcher != nil
	case s.queue != nil:
		return p.queue != nil
	}
	return p.rated
}

// measure measures the phase.
func (p phase) measure(r *run) {
	switch of := r.system; {
	case of.args != nil:
		s := &session{run: r, dispatcher: r.launch(of.args(r)), url: r.receiver.url}
		r.awaitReady(s.dispatcher, startTime)
		s.warmUp()
		p.dispatcher(s)
	case of.queue != nil:
		p.queue(r, of.queue(r))
	default:
		drainQueue(r, bareLoop{})
	}
}
