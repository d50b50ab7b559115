package dispatch

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

func leasesOf(healths ...schedule.Health) []schedule.Lease {
	l := make([]schedule.Lease, len(healths))
	for i, h := range healths {
		l[i].Health = h
	}
	return l
}

// Lanes that hang hold at most half of the slots, with those that have not answered yet at most three quarters.
// A quarter must be free for a claim to take what is not due yet.
func TestSlotsKeepRoomForLanesThatAnswer(t *testing.T) {
	t.Parallel()
	s := newSlots(8)
	g := s.reserve(64)
	if g != (grant{n: 8, uncertain: 6, timingOut: 4, early: true}) {
		t.Fatalf("first grant: %+v", g)
	}
	s.settle(g, leasesOf(schedule.TimingOut, schedule.TimingOut, schedule.TimingOut, schedule.TimingOut))
	if g = s.reserve(64); g != (grant{n: 4, uncertain: 2, timingOut: 0, early: true}) {
		t.Fatalf("with four that time out: %+v", g)
	}
	s.settle(g, leasesOf(schedule.Unproven, schedule.Unproven))
	if g = s.reserve(64); g != (grant{n: 2, early: true}) {
		t.Fatalf("with two unproven more: %+v", g)
	}
	s.settle(g, leasesOf(schedule.Answering, schedule.Answering))
	if g = s.reserve(1); g != (grant{}) {
		t.Fatalf("with none free: %+v", g)
	}
	select {
	case <-s.freed:
		t.Fatal("a word that a slot is free, and none is")
	default:
	}
	s.settle(g, nil)
	s.release(schedule.TimingOut)
	select {
	case <-s.freed:
	default:
		t.Fatal("no word that a slot is free")
	}
	if g = s.reserve(64); g != (grant{n: 1, uncertain: 1, timingOut: 1}) {
		t.Fatalf("after one that timed out: %+v", g)
	}
	s.settle(g, nil)
	for _, h := range []schedule.Health{schedule.TimingOut, schedule.TimingOut, schedule.TimingOut, schedule.Unproven, schedule.Unproven, schedule.Answering, schedule.Answering} {
		s.release(h)
	}
	if s.used != 0 || s.uncertain != 0 || s.timingOut != 0 {
		t.Errorf("slots leaked: %d used, %d uncertain, %d timing out", s.used, s.uncertain, s.timingOut)
	}
}

// A shard's reservation is exclusive: two claims under way never get more than there is.
func TestSlotsAreReservedWhileAClaimIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newSlots(10)
	a, b := s.reserve(6), s.reserve(6)
	if a.n != 6 || b.n != 4 || a.uncertain+b.uncertain > 8 || a.timingOut+b.timingOut > 5 {
		t.Errorf("got %+v and %+v", a, b)
	}
}

func TestIDsGrow(t *testing.T) {
	t.Parallel()
	var s idSource
	at := time.Now()
	last := ""
	for range 10_000 {
		id := s.make(at)
		if len(id) != 26 || id <= last {
			t.Fatalf("%q after %q", id, last)
		}
		last = id
	}
}

func TestLockIDsBelongToTheirProject(t *testing.T) {
	t.Parallel()
	if lockID("a", "") != "" {
		t.Error("no key has a lock")
	}
	seen := map[string]string{}
	for _, p := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"a", "b"}, {"b", "a"}, {"a", "bc "}} {
		id := lockID(p[0], p[1])
		if len(id) != 16 {
			t.Errorf("%q is %d characters", id, len(id))
		}
		if other, taken := seen[id]; taken {
			t.Errorf("%v and %s share a lock", p, other)
		}
		seen[id] = p[0] + "/" + p[1]
	}
}

func TestLaneOf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://Shop.Example/notify?x=1": "https://shop.example:443",
		"http://shop.example":             "http://shop.example:80",
		"http://127.0.0.1:8080/a":         "http://127.0.0.1:8080",
		"https://[2606:4700::1111]/":      "https://[2606:4700::1111]:443",
	} {
		if got, err := LaneOf(in); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "shop.example", "ftp://shop.example", "http://", "/x", "http:x", "%"} {
		if got, err := LaneOf(bad); err == nil {
			t.Errorf("%q: got %q, want an error", bad, got)
		}
	}
}
