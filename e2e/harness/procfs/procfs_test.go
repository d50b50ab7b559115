package procfs

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestProcIsRead(t *testing.T) {
	const line = "4711 (a) b (c) S 42 1 1 0 -1 4194560 100 200 0 0 150 50 7 3 20 0 1 0 12345 1000 10 " +
		"18446744073709551615"
	got, err := ParseStat(line)
	if want := (Stat{PID: 4711, Parent: 42, Name: "a) b (c", Seconds: 2.10}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "12", "1 (x) S 2", "x (y) S " + strings.Repeat("1 ", 20)} {
		if p, err := ParseStat(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, p)
		}
	}
	if n, err := bytesIn("VmPeak:\t  10 kB\nVmHWM:\t    1234 kB\n", "VmHWM"); err != nil || n != 1234<<10 {
		t.Errorf("VmHWM is %d, %v", n, err)
	}
	if _, err := bytesIn("VmPeak:\t  10 kB\n", "VmHWM"); err == nil {
		t.Error("a line that is not there was found")
	}
	busy, err := BusySeconds("cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3\n")
	if err != nil || math.Abs(busy-1.71) > 1e-9 {
		t.Errorf("busy for %g s, %v; want 1.71", busy, err)
	}
}

func TestFamilyHasThisProcess(t *testing.T) {
	procs, err := Family()
	if err != nil || !slices.ContainsFunc(procs, func(p Stat) bool {
		return p.PID == os.Getpid() && p.Parent == os.Getppid()
	}) {
		t.Errorf("process %d is not among %+v, %v", os.Getpid(), procs, err)
	}
	if n, err := Bytes(os.Getpid(), "status", "VmRSS"); err != nil || n < 1<<20 {
		t.Errorf("%d bytes are resident, %v", n, err)
	}
	if _, err := Bytes(1<<30, "status", "VmRSS"); !Ended(err) {
		t.Errorf("a process that is not there: %v", err)
	}
}
