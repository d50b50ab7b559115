//go:build failpoints

package process

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// passes counts the passes of the chosen failpoint.
var passes atomic.Int64

// Failpoint kills this process with SIGKILL at the pass that DISPATCHER_FAILPOINT=name[:pass] selects; the
// first pass is 1. With name:pass:stop it stops the process with SIGSTOP until a test continues it. Only test
// builds contain this file.
func Failpoint(name string) {
	chosen, pass, _ := strings.Cut(os.Getenv("DISPATCHER_FAILPOINT"), ":")
	if chosen != name {
		return
	}
	pass, stop := strings.CutSuffix(pass, ":stop")
	at, err := strconv.ParseInt(pass, 10, 64)
	if err != nil {
		at = 1
	}
	if passes.Add(1) != at {
		return
	}
	if stop {
		stopSelf(name)
		return
	}
	killSelf(name)
}

// FailpointOf is Failpoint with a description of what passes, such as a callback's URL. With
// DISPATCHER_FAILPOINT=name@text it kills the process whenever about contains text. A restarted process is
// killed there again.
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
	signalSelf(name, syscall.SIGKILL)
	select {}
}

// stopSelf stops the process, and returns after SIGCONT. The signal to stop may take effect a little later
// than the call that sends it.
func stopSelf(name string) {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	signalSelf(name, syscall.SIGSTOP)
	<-resumed
}

func signalSelf(name string, s syscall.Signal) {
	fmt.Fprintf(os.Stderr, "failpoint %s: %s\n", name, s)
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		panic(err)
	}
}

// ReadTimes returns DefaultTimes with the changes of DISPATCHER_FAILPOINT_TIMES, such as lease=3s,sweep=1s.
// Each is in whole seconds, from one second to its default.
func ReadTimes() (Times, error) {
	times := DefaultTimes()
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
			return times, fmt.Errorf("DISPATCHER_FAILPOINT_TIMES: %q: the name must be lease, margin, "+
				"sweep, slack or leader", part)
		}
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Second || d > *field || d%time.Second != 0 {
			return times, fmt.Errorf("DISPATCHER_FAILPOINT_TIMES: %q must be 1s to %s in whole seconds",
				part, *field)
		}
		*field = d
	}
	return times, nil
}
