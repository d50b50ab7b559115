package queuetest

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// hintTimeout bounds the wait for what happens at once on a machine with nothing else to do.
const hintTimeout = time.Minute

// listen runs the index's subscription until the returned function is called, which also waits for its end.
func (f *fixture) listen() (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- f.Index.Run(ctx) }()
	return func() {
		select {
		case err := <-done:
			f.Fatalf("Run returned %v before its context ended", err)
		default:
		}
		cancel()
		select {
		case err := <-done:
			f.no(err)
		case <-time.After(hintTimeout):
			f.Fatalf("Run did not return when its context had ended")
		}
	}
}

// hinted does act until a hint for shard 0 comes. A hint may be lost, so that act is repeated; it must be one
// that deserves a hint each time.
func (f *fixture) hinted(act func()) {
	f.Helper()
	for deadline := time.Now().Add(hintTimeout); time.Now().Before(deadline); {
		for len(f.Index.Hints()) > 0 {
			<-f.Index.Hints()
		}
		act()
		for timer := time.After(200 * time.Millisecond); timer != nil; {
			select {
			case shard := <-f.Index.Hints():
				if shard == 0 {
					return
				}
			case <-timer:
				timer = nil
			}
		}
	}
	f.Fatalf("no hint came")
}

func hintEarlier(f *fixture) {
	defer f.listen()()
	hours := time.Duration(1000)
	f.hinted(func() {
		// a shard that was opened has announced that it can be claimed now: nothing is earlier
		f.claim(f.wide())
		hours--
		f.ensure(f.item(0, hours*time.Hour))
	})
	item := f.item(0, 8*time.Hour)
	f.ensure(item)
	seconds := int64(3000)
	f.hinted(func() {
		f.claim(f.wide())
		seconds--
		_, err := f.Index.Move(f.ctx, []schedule.Movement{{Ref: item.Ref(), Due: f.Now() + seconds*1000}})
		f.no(err)
	})
	f.pass(time.Hour)
	f.hinted(func() {
		leases := f.take()
		if len(leases) == 0 {
			f.ensure(f.item(0, 0))
			leases = f.take()
		}
		s := settled(leases[0], schedule.Reschedule)
		s.Due = f.Now() + 100
		f.apply(s)
		f.pass(time.Second)
	})
}

func hintRoom(f *fixture) {
	defer f.listen()()
	f.ensure(f.items(0, 500)...)
	leases := f.take()
	f.hinted(func() {
		f.ack(leases[:1], schedule.NoSignal)
		leases = append(leases[1:], f.take()...)
		f.ack(leases[:1], schedule.NoSignal)
		leases = leases[1:]
		f.ensure(f.item(0, 0))
	})
	pause := func(d time.Duration) {
		f.set(schedule.LaneSetting{Lane: f.lanes[1], PausedUntil: f.Now() + d.Milliseconds()})
	}
	pause(time.Hour)
	f.ensure(f.item(1, 0))
	f.hinted(func() {
		f.take()
		pause(time.Hour)
		pause(0)
		f.ensure(f.item(1, 0))
	})
}

// hintLeftRoom: a claim that frees more of a lane than it takes wakes the claimers of others.
func hintLeftRoom(f *fixture) {
	defer f.listen()()
	var left []schedule.Lease
	f.hinted(func() {
		f.ack(left, schedule.NoSignal)
		f.ensure(f.items(0, 40)...)
		four, req := f.take(), f.wide()
		req.Max = 1
		for _, l := range four[:2] {
			req.Ended = append(req.Ended, schedule.EndedLease{LeaseRef: l.LeaseRef()})
		}
		left = append(four, f.claim(req).Leases...)
	})
}

func hintChannel(f *fixture) {
	hints := f.Index.Hints()
	stop := f.listen()
	if f.Index.Hints() != hints {
		f.Fatalf("the channel of hints changed")
	}
	stop()
	select {
	case _, open := <-hints:
		if !open {
			f.Fatalf("the channel of hints was closed")
		}
	default:
	}
}
