//go:build failpoints

package part

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// passes counts how often the chosen failpoint was passed.
var passes atomic.Int64

// Failpoint kills this process, as kill -9 would, at the pass that DISPATCHER_FAILPOINT=name[:pass] names;
// the first pass is 1. The file is part of test builds only.
func Failpoint(name string) {
	chosen, pass, _ := strings.Cut(os.Getenv("DISPATCHER_FAILPOINT"), ":")
	if chosen != name {
		return
	}
	at, err := strconv.ParseInt(pass, 10, 64)
	if err != nil {
		at = 1
	}
	if passes.Add(1) != at {
		return
	}
	killSelf(name)
}

// FailpointOf is Failpoint, and kills this process at every pass of DISPATCHER_FAILPOINT=name@text that is
// about something with that text in it.
func FailpointOf(name, about string) {
	chosen, text, every := strings.Cut(os.Getenv("DISPATCHER_FAILPOINT"), "@")
	if !every {
		Failpoint(name)
		return
	}
	if chosen == name && strings.Contains(about, text) {
		killSelf(name)
	}
}

func killSelf(name string) {
	fmt.Fprintf(os.Stderr, "failpoint %s: kill\n", name)
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(err)
	}
	select {}
}

// ReadTimes are the usual times, except for those that DISPATCHER_FAILPOINT_TIMES names, as
// lease=3s,sweep=1s: from a second to the usual time each, in whole seconds.
func ReadTimes() (Times, error) {
	times := UsualTimes()
	text := os.Getenv("DISPATCHER_FAILPOINT_TIMES")
	if text == "" {
		return times, nil
	}
	fields := map[string]*time.Duration{
		"lease": &times.Lease, "margin": &times.Margin, "sweep": &times.Sweep, "slack": &times.Slack,
		"leader": &times.Leader,
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		field := fields[name]
		if field == nil {
			return times, fmt.Errorf("DISPATCHER_FAILPOINT_TIMES: %q names none of lease, margin, sweep, "+
				"slack, leader", part)
		}
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second || d > *field || d%time.Second != 0 {
			return times, fmt.Errorf("DISPATCHER_FAILPOINT_TIMES: %q is not from 1s to %s in whole seconds",
				part, *field)
		}
		*field = d
	}
	return times, nil
}
