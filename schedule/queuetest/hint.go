package queuetest

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// hintTimeout bounds the wait for an event that an idle machine delivers at once.
const hintTimeout = time.Minute

// listen runs the index's subscription until the returned function is called. The function waits for its end.
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
			f.noErr(err)
		case <-time.After(hintTimeout):
			f.Fatalf("Run did not return when its context had ended")
		}
	}
}

// hinted repeats act until a hint for shard 0 comes, because a hint may be lost. Each call of act must cause
// a hint.
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

// hintEarlier checks that an ensure, a move and a settlement send a hint if they bring an event nearer.
func hintEarlier(f *fixture) {
	defer f.listen()()
	hours := time.Duration(1000)
	f.hinted(func() {
		// An open shard has announced that it can be claimed now, so the claim comes first.
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
		f.noErr(err)
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

// hintRoom checks that a settlement and the end of a pause send a hint if a lane has room again.
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

// hintLeftRoom checks that a claim sends a hint if it frees more places of a lane than it takes: other
// claimers may sleep.
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

// hintChannel checks that an index has one channel of hints, which stays open.
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
